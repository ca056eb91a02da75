# SPDX-License-Identifier: Apache-2.0
"""A VM's disk, and the volumes that are made with it, take room on the host's disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.core.placement.rules.rule import Amounts, GpuInUse, HostInUse, Need, Resource
from orchestrator.core.placement.rules.wanted import Wanted
from orchestrator.core.units import GIB

DISK: Final = Resource("disk")
"""In GiB."""


@dataclass(frozen=True, slots=True)
class NeedsDisk(Need):
    """So many GiB."""

    codes = ("host.disk",)
    curable = codes
    after_shortage = True

    gib: int

    def off_host(self, host: HostInUse) -> Iterator[str]:
        if host.free.get(DISK, 0) < self.gib:
            yield "host.disk"

    def takes(self, gpus: Sequence[GpuInUse]) -> Amounts:
        return amounts_of(self.gib)

    def short(self, host: HostInUse, gpus: Sequence[GpuInUse] | None, free: Mapping[Resource, int]) -> tuple[int, ...]:
        return (max(0, self.gib - free.get(DISK, 0)),)

    def message(self, code: str) -> str:
        return f"too little free disk for {self.gib} GiB"


def needs_of(wanted: Wanted) -> Iterator[Need]:
    if (wanted.made is None or wanted.moves) and wanted.vm.disk_bytes:
        yield NeedsDisk(gib_of(wanted.vm.disk_bytes))


def gib_of(disk_bytes: int) -> int:
    """What it counts as, in GiB."""
    return -(-disk_bytes // GIB)


def amounts_of(gib: int) -> Amounts:
    """As hosts have it, and VMs."""
    return ((DISK, gib),)
