# SPDX-License-Identifier: Apache-2.0
"""Snapshots of a VM's disk on its host, as values. One is removed as any file of the VM is (``DeleteVolume``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from orchestrator.core.actions.host_actions import DeleteVolume, HostAction

BYTES_PER_S: Final = 50_000_000
"""Of a disk that is slow for hosts with GPUs."""


@dataclass(frozen=True, kw_only=True)
class LongCopy(HostAction):
    """What all are: begun, then asked for until the answer is not ``unfinished`` any more."""

    since = 11
    size_bytes: int
    """What a guest sees of what is made."""

    @property
    def limit_s(self) -> int:
        """Seconds that it may take."""
        return 300 + self.size_bytes // BYTES_PER_S


@dataclass(frozen=True, kw_only=True)
class CopiesDisk(LongCopy):
    """Of a VM's disk."""

    vm: str
    disk: str
    """File name of the disk that the snapshot is of, which says what either lies on."""
    volume: str
    """A file beside it: the snapshot's, or the VM's that a snapshot is copied to."""


@dataclass(frozen=True, kw_only=True)
class CopiedVolume:
    """A data volume of a VM that is copied at the same moment as its disk."""

    volume: str
    """File name of the copy: a data volume that is no VM's."""
    of: str
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class TakeSnapshot(CopiesDisk):
    """Copy what is on the disk at one moment to a file, while the VM runs or is stopped; the result's message says
    which. One that is there is left as it is. Refused while nothing has changed where there is no room. All copies are
    made, or none is there."""

    volumes: tuple[CopiedVolume, ...] = ()

    @property
    def limit_s(self) -> int:
        """For all of them."""
        return super().limit_s + sum(copied.size_bytes for copied in self.volumes) // BYTES_PER_S

    def inverse(self) -> HostAction:
        return DeleteVolume(vm=self.vm, volume=self.volume)


@dataclass(frozen=True, kw_only=True)
class CopySnapshot(CopiesDisk):
    """Copy a snapshot to a file of the VM, on the image that the disk lies on. One that is there is left as it is."""

    of: str
    """The VM that the snapshot and the disk are of."""
    snapshot: str

    def inverse(self) -> HostAction:
        return DeleteVolume(vm=self.vm, volume=self.volume)


@dataclass(frozen=True, kw_only=True)
class FlattenSnapshot(CopiesDisk):
    """Copy a snapshot to a file of the VM that lies on nothing. One that is there is left as it is."""

    snapshot: str

    def inverse(self) -> HostAction:
        return DeleteVolume(vm=self.vm, volume=self.volume)


@dataclass(frozen=True, kw_only=True)
class RestoreSnapshot(CopiesDisk):
    """Put a copy of the snapshot in the place of a stopped VM's disk: whole, or the disk stays as it was."""

    copy: str = ""
    """A file of the VM that is such a copy, and is taken for it where it is there."""

    no_inverse = "what was on the disk before is gone"
