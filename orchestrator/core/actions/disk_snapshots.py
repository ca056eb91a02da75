# SPDX-License-Identifier: Apache-2.0
"""Snapshots of a VM's disk on its host, as values. One is removed as any file of the VM is (``DeleteVolume``)."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.actions.host_actions import DeleteVolume, HostAction


@dataclass(frozen=True, kw_only=True)
class CopiesDisk(HostAction):
    """What both are."""

    since = 11
    vm: str
    disk: str
    """File name of the VM's disk."""
    volume: str
    """The snapshot's, beside it."""
    size_bytes: int
    """What a guest sees of either."""

    @property
    def limit_s(self) -> int:
        """Seconds that it may take: a disk that is slow for hosts with GPUs has 50 MB/s."""
        return 300 + self.size_bytes // 50_000_000


@dataclass(frozen=True, kw_only=True)
class TakeSnapshot(CopiesDisk):
    """Copy what is on the disk at one moment to a file, while the VM runs or is stopped; the result's message says
    which. One that is there is left as it is. Refused while nothing has changed where there is no room."""

    def inverse(self) -> HostAction:
        return DeleteVolume(vm=self.vm, volume=self.volume)


@dataclass(frozen=True, kw_only=True)
class RestoreSnapshot(CopiesDisk):
    """Put a copy of the snapshot in the place of a stopped VM's disk: whole, or the disk stays as it was."""

    no_inverse = "what was on the disk before is gone"
