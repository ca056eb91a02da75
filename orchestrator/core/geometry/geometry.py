# SPDX-License-Identifier: Apache-2.0
"""All ways in which one GPU may be cut, and what each profile name means in each of them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cached_property

from orchestrator.core.geometry.cut import Cut
from orchestrator.core.gpu.mig_profile import is_mig_profile_name
from orchestrator.core.gpu.vgpu_type import is_vgpu_type_name, parse_vgpu_type_name

Options = Mapping[str, tuple[tuple[str, str], ...]]


class Geometry:
    """The cuts a GPU may have. Only an empty GPU changes its cut; equal ``key`` means equal behaviour."""

    def __init__(
        self, model: str, memory_mib: int, cuts: tuple[Cut, ...], options: Options, held: Options | None = None
    ) -> None:
        """``options``: profile name → (cut name, shape) pairs that serve it, preferred first. ``held``: the same of
        profiles that others may have there and no VM can be given."""
        self.model = model
        self.memory_mib = memory_mib
        self.cuts = cuts
        self.options = dict(options)
        self._held = dict(held or {})
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
        shapes = self.options.get(profile) or self._held.get(profile, ())
        return next((shape for name, shape in shapes if name == cut), None)

    def vgpu_type_of(self, profile: str) -> str:
        """The vGPU type that a VM of the profile gets. What names a GPU instance is given as the MIG-backed type that
        takes the whole of it, one for computing before others."""
        if not is_mig_profile_name(profile):
            return profile
        places = self.options.get(profile, ())
        backed = [name for name, shapes in self.options.items() if shapes == places and is_vgpu_type_name(name)]
        return min(backed, key=lambda name: (parse_vgpu_type_name(name).series != "C", name), default=profile)
