# SPDX-License-Identifier: Apache-2.0
"""Which ways of moving there are, and what is answered of one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, get_args

MoveKind = Literal["live", "suspended", "hibernated", "cold"]
"""As NVML names what a vGPU can go through: while it runs; with its memory and its devices' state in a file; with its
memory on its own disk, written by the guest; stopped (nvmlVgpuVmCompatibility_t: LIVE, SLEEP, HIBERNATE, COLD)."""
KINDS: Final[tuple[MoveKind, ...]] = get_args(MoveKind)
EVERY: Final[frozenset[MoveKind]] = frozenset(KINDS)
WITH_DEVICES: Final[frozenset[MoveKind]] = frozenset({"live", "suspended"})
"""The state of its devices goes along."""
WITH_MEMORY: Final[frozenset[MoveKind]] = WITH_DEVICES | {"hibernated"}
"""What its guest has in memory goes on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MoveLimit:
    """Why a VM may not move in some way."""

    code: str
    """Stable dotted code; docs/reference/errors.md lists them."""
    message: str
    """One sentence for people."""
    cure: str | None = None
    """What would make it legal; None: nothing that vgpuctl knows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MoveVerdict:
    """Of one way of moving."""

    kind: MoveKind
    """The way: with which of its state it goes."""
    limits: tuple[MoveLimit, ...]
    """All that is known, the VM's own first; empty: it is legal."""

    @property
    def legal(self) -> bool:
        return not self.limits


@dataclass(frozen=True, kw_only=True, slots=True)
class HostMoves:
    """Whether a VM may move to a host, in each way."""

    host: str
    """Name of the host."""
    is_its_own: bool
    """The VM is on it already."""
    verdicts: tuple[MoveVerdict, ...]
    """One of each kind, in the order of :data:`KINDS`."""
    gpus: tuple[str, ...] = ()
    """PCI addresses of the GPUs that it would have, stopped; empty where there is no place for it."""

    def may(self, kind: MoveKind) -> bool:
        """Whether it may move in that way."""
        return self.of(kind).legal

    def of(self, kind: MoveKind) -> MoveVerdict:
        return next(verdict for verdict in self.verdicts if verdict.kind == kind)


Bars = tuple[frozenset[MoveKind], MoveLimit]
"""Which ways of moving a limit rules out."""


def limits_on(kind: MoveKind, bars: Iterable[Bars]) -> tuple[MoveLimit, ...]:
    """Those that rule the kind out, each once, in their order."""
    return tuple(dict.fromkeys(limit for kinds, limit in bars if kind in kinds))
