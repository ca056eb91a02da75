# SPDX-License-Identifier: Apache-2.0
"""Backups of VMs' disks and data volumes, as values. Each is begun, then asked for until the answer is not
``unfinished`` any more. Its password is for the agent alone, and in no text of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from orchestrator.core.actions.host_actions import DeleteVolume, HostAction
from orchestrator.core.actions.volumes import DeleteDataVolume
from orchestrator.core.bucket import Bucket

_SLOWEST_BYTES_PER_S: Final = 20_000_000


@dataclass(frozen=True, kw_only=True)
class UsesRepository(HostAction):
    """What all are."""

    since = 11
    target: str
    """Name of what is mounted below the agent's ``backups``, or of the bucket."""
    of_vm: str
    """Id of the VM whose repository it is there."""
    password: str = field(repr=False)
    backup: str
    """Its id."""
    size_bytes: int
    """Of the disk in it, or of the volume."""
    bucket: Bucket | None = None
    """None: it is mounted."""
    part: str = ""
    """Which data volume in it, as its repository calls that; empty: the VM's disk."""

    @property
    def limit_s(self) -> int:
        """Seconds that it may take in all: a target that is slow has 20 MB/s."""
        return 1800 + self.size_bytes // _SLOWEST_BYTES_PER_S


@dataclass(frozen=True, kw_only=True)
class StoreBackup(UsesRepository):
    """Put what a snapshot of the VM holds into the repository, which is made when there is none; the result's message
    says by how many bytes that grew, or nothing where that is not known."""

    disk: str
    """File name of the VM's disk."""
    volume: str
    """File name of the snapshot of it; of a ``part``: of the copy of that data volume."""
    vm_name: str
    """TENANT/NAME of the VM, for whoever finds it in the repository."""
    max_bytes_per_s: int = 0
    """Written to the target; 0: as much as goes."""

    @property
    def limit_s(self) -> int:
        slowest = min(_SLOWEST_BYTES_PER_S, self.max_bytes_per_s or _SLOWEST_BYTES_PER_S)
        return 1800 + self.size_bytes // slowest

    @property
    def vm(self) -> str:
        """Whose turn it is in."""
        return self.of_vm

    def inverse(self) -> HostAction:
        return RemoveBackup(
            target=self.target, of_vm=self.of_vm, password=self.password, backup=self.backup,
            size_bytes=self.size_bytes, bucket=self.bucket, part=self.part,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class FetchBackup(UsesRepository):
    """Make a snapshot of a VM of what a backup holds, or its disk: of that VM or another one."""

    vm: str
    volume: str
    """File name of the snapshot, or of the disk."""
    disk_bytes: int
    """Of the VM's disk, and so of the snapshot: at least those of the backup."""
    image: str = ""
    """File name of the base image that a disk is to lie on; empty: a snapshot, which lies on nothing."""

    def inverse(self) -> HostAction:
        return DeleteVolume(vm=self.vm, volume=self.volume)


@dataclass(frozen=True, kw_only=True)
class FetchVolume(UsesRepository):
    """Make a data volume, which no VM has, of what a ``part`` of a backup holds. One that is there is left as it is."""

    volume: str
    """File name of it."""
    volume_bytes: int
    """What a guest sees of it: at least those of the backup."""

    def inverse(self) -> HostAction:
        return DeleteDataVolume(volume=self.volume)


@dataclass(frozen=True, kw_only=True)
class VerifyBackup(UsesRepository):
    """Read all of a backup, whose pieces are compared with their digests, and throw it away."""

    given_up: bool = False
    """End one that goes on, instead."""

    no_inverse = "nothing is changed"


@dataclass(frozen=True, kw_only=True)
class RemoveBackup(UsesRepository):
    """Take all of a backup out of its repository, and what no other one needs. Unchanged: the host has no such
    repository."""

    no_inverse = "what was in it is gone"


@dataclass(frozen=True, kw_only=True)
class FindRepositories(HostAction):
    """Look which VMs have one in a target; the result's message is a list of their ids, in JSON."""

    since = 11
    target: str
    bucket: Bucket | None = None
    """None: it is mounted."""

    no_inverse = "nothing is changed"


@dataclass(frozen=True, kw_only=True)
class ListBackups(UsesRepository):
    """Look which backups a repository has; the result's message is a list in JSON, of id, time in RFC 3339, size of the
    disk in bytes, the VM's name, and of data volumes what each is called there and its size. ``backup`` is empty."""

    tenant: str
    """Whose, as was written there when they were made."""

    no_inverse = "nothing is changed"
