# SPDX-License-Identifier: Apache-2.0
"""A directory that several hosts in memory have mounted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from orchestrator.core.errors import Conflict
from orchestrator.core.hosts.snapshot import PoolSnapshot
from orchestrator.core.units import GIB
from orchestrator.core.vms.volume import is_reader, read_by


@dataclass(slots=True)
class SimulatedPool:
    """One object, whichever machines have it."""

    name: str
    capacity_bytes: int = 1024 * GIB
    pool_id: str | None = None
    """That it was declared with."""
    files: dict[str, int] = field(default_factory=dict)
    """Disks and data volumes → bytes."""
    images: set[str] = field(default_factory=set, compare=False)
    """They stay for the next VM."""
    bases: dict[str, str] = field(default_factory=dict)
    """Disk → base image."""
    leases: dict[str, str] = field(default_factory=dict)
    """File → machine id of the host that may open it."""
    writers: dict[str, tuple[str, str]] = field(default_factory=dict)
    """File → machine id and VM of the QEMU that has it open for writing, which locks it."""

    @property
    def free_bytes(self) -> int:
        return max(0, self.capacity_bytes - sum(self.files.values()))

    @property
    def snapshot(self) -> PoolSnapshot:
        """As each host tells of it."""
        return PoolSnapshot(
            name=self.name, pool_id=self.pool_id, capacity_bytes=self.capacity_bytes, free_bytes=self.free_bytes
        )

    def close(self, machine_id: str, vm: str | None = None) -> None:
        """What that VM had open on that machine; None: all VMs."""
        mine = [
            file for file, (machine, writer) in self.writers.items() if machine == machine_id and vm in {None, writer}
        ]
        for file in mine:
            del self.writers[file]


def check_not_read(files: Iterable[str], volume: str) -> None:
    """That none of these is a second name of it. :raises Conflict: ``volume.in_use``"""
    if any(is_reader(name) and read_by(name.removesuffix(".raw")) == volume for name in files):
        raise Conflict("volume.in_use", "VMs have the data volume read-only")
