# SPDX-License-Identifier: Apache-2.0
"""Which card each managed GPU is, and what moves with a card that is moved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from orchestrator.core.actions.gpu_cards import GpuCard


class Cards(Protocol):
    def of_host(self, host: str) -> tuple[GpuCard, ...]:
        """Those that are known, by address."""

    def learn(self, host: str, seen: Iterable[GpuCard]) -> None:
        """Which those GPUs are of which it is not known yet."""

    def mig_found(self, host: str) -> dict[str, bool]:
        """GPU → the MIG mode that it had before we changed it, as far as that is known."""

    def learn_mig_modes(self, host: str, found: Mapping[str, bool]) -> None:
        """The same, of those of which it is not known yet."""

    def put(self, host: str, cards: Sequence[GpuCard], moved: Mapping[str, str]) -> None:
        """Which the host's GPUs are now. What is known, kept and claimed of one goes from its old address to its new
        one (``moved``), with its VMs' devices. A GPU whose address another card took is no more."""
