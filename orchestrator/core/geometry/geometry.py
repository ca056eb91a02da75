# SPDX-License-Identifier: Apache-2.0
"""All ways in which one GPU may be cut, and what each profile name means in each of them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cached_property

from orchestrator.core.geometry.cut import Cut


class Geometry:
    """The cuts a GPU may have. Only an empty GPU changes its cut; equal ``key`` means equal behaviour."""

    def __init__(
        self, model: str, memory_mib: int, cuts: tuple[Cut, ...], options: Mapping[str, tuple[tuple[str, str], ...]]
    ) -> None:
        """``options``: profile name → (cut name, shape) pairs that serve it, preferred first."""
        self.model = model
        self.memory_mib = memory_mib
        self.cuts = cuts
        self.options = dict(options)
        self._by_name = {cut.name: cut for cut in cuts}

    @cached_property
    def key(self) -> tuple[Hashable, ...]:
        """Equal for GPUs that may be exchanged for each other."""
        return (self.model, self.memory_mib, tuple(cut.key for cut in self.cuts), tuple(sorted(self.options.items())))

    def cut(self, name: str) -> Cut | None:
        """The cut of that name, None when this GPU cannot be cut so."""
        return self._by_name.get(name)

    def supports(self, profile: str) -> bool:
        """Whether the profile can exist on this GPU at all."""
        return profile in self.options

    def shape_in(self, profile: str, cut: str) -> str | None:
        """What ``profile`` is in ``cut``; None: it cannot exist there."""
        return next((shape for name, shape in self.options.get(profile, ()) if name == cut), None)
