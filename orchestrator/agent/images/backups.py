# SPDX-License-Identifier: Apache-2.0
"""Backups of disks and data volumes by restic: one repository for each VM, below a target that is
mounted here or in a bucket. What is in it is a disk as its guest sees it: no header that a guest's QEMU could have
written is read when it comes back."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from orchestrator.agent.images import files
from orchestrator.agent.images.bucket import BucketRepository, Objects
from orchestrator.agent.images.disk_images import from_raw, image_format_of, read_header, to_raw
from orchestrator.agent.images.pool_mounts import is_mounted
from orchestrator.agent.images.repository import DISK, MountedRepository, Repository, listed
from orchestrator.agent.images.store import Storage
from orchestrator.agent.process import PROGRAMS
from orchestrator.core.actions.backups import (
    FetchBackup,
    FetchVolume,
    FindRepositories,
    ListBackups,
    RemoveBackup,
    StoreBackup,
    UsesRepository,
    VerifyBackup,
)
from orchestrator.core.actions.host_actions import ActionResult, HostAction
from orchestrator.core.bucket import Bucket, check_bucket_url
from orchestrator.core.errors import Conflict, Fatal, NotFound
from orchestrator.core.vms.backup import DIRECTORY, REPOSITORY

_MEASURED_EVERY: Final = 64 * 2**20
"""Bytes of a backup that comes: who fills a host's disk has the VMs on it stopped."""
_HOLE: Final = 64 * 1024
_MAX_REPOSITORIES: Final = 5000
_MAX_OF_ONE: Final = 1000
"""Backups, of which an answer tells."""


@dataclass(frozen=True)
class BackupsOfDisks:
    """``ended``: set when nobody wants it any more; it is given up then, whatever is raised."""

    storage: Storage

    def store(self, action: StoreBackup, ended: threading.Event) -> ActionResult:
        """:raises NotFound: ``snapshot.missing``, ``backup.no_target``, ``backup.no_restic``
        :raises Conflict: ``volume.differs``
        :raises Fatal: ``host.disk_full``, ``volume.failed`` and those of :data:`_SIGNS`"""
        repository = self._repository(action, ended)
        repository.make()
        if repository.tagged(action.backup, action.part or DISK):
            return ActionResult(changed=False)
        if action.part:
            source = self.storage.data.existing(action.volume)
            _check_length(source.stat().st_size, action)
            return _added(repository, source, action)
        source = self.storage.paths.volumes / files.check_file_name(action.volume)
        image = self.storage.image_beneath(action.of_vm, action.disk)
        if image is None or not self.storage.is_ours(source, "volume", action.of_vm):
            hint = "run the command again: it takes another one"
            raise NotFound("snapshot.missing", "the snapshot is not on the host", hint=hint, details=source.name)
        _check_length(read_header(source, "qcow2").virtual_bytes, action)
        base, limit = self.storage.paths.images / image, action.limit_s
        files.check_free(source.parent, files.taken(source) + files.taken(base))
        with files.scratch(source) as raw:
            to_raw(source, raw, base=base, base_format=image_format_of(base), limit_s=limit, ended=ended)
            return _added(repository, raw, action)

    def fetch(self, action: FetchBackup, ended: threading.Event) -> ActionResult:
        """:raises NotFound: ``backup.missing``, ``backup.no_target``, ``backup.no_restic``
        :raises Conflict: ``host.foreign_file``, ``backup.larger``
        :raises Fatal: ``backup.damaged``, ``host.disk_full``, ``volume.failed``, ``image.missing``; nothing is left"""
        target = self.storage.paths.volumes / files.check_file_name(action.volume)
        if self.storage.is_ours(target, "volume", action.vm):
            return ActionResult(changed=False)
        repository = self._repository(action, ended)
        base = self.storage.paths.images / files.check_file_name(action.image) if action.image else None
        if base is not None and not base.exists():
            raise Fatal("image.missing", "the base image is not on the host", hint="send it first", details=base.name)
        with (
            self.storage.owned("volume", target, action.vm, action.image or "stopped"),
            files.written_whole(target, mode=0o600) as part,
            files.scratch(target) as raw,
        ):
            with raw.open("xb") as file:
                fetched = Sparse(file.fileno(), action.disk_bytes)
                repository.read(action.backup, DISK, fetched.take)
                _check_whole(fetched, action)
                file.truncate(action.disk_bytes)
            files.check_free(raw.parent, files.taken(raw))
            from_raw(raw, part, base=base, limit_s=action.limit_s, ended=ended)
        return ActionResult(changed=True)

    def fetch_volume(self, action: FetchVolume, ended: threading.Event) -> ActionResult:
        """:raises NotFound: ``backup.missing``, ``backup.no_target``, ``backup.no_restic``
        :raises Conflict: ``host.foreign_file``, ``backup.larger``
        :raises Fatal: ``backup.damaged``, ``host.disk_full``; nothing is left"""
        with self.storage.data.new(action.volume, action.volume_bytes) as part:
            if part is None:
                return ActionResult(changed=False)
            with part.open("xb") as file:
                fetched = Sparse(file.fileno(), action.volume_bytes)
                self._repository(action, ended).read(action.backup, action.part, fetched.take)
                _check_whole(fetched, action)
                file.truncate(action.volume_bytes)
        return ActionResult(changed=True)

    def verify(self, action: VerifyBackup, ended: threading.Event) -> ActionResult:
        """One that goes on for another action has been ended before.

        :raises Fatal: ``backup.damaged``, and those of :data:`_SIGNS`"""
        if action.given_up:
            return ActionResult(changed=False)
        counted = Sparse(None, action.size_bytes)
        self._repository(action, ended).read(action.backup, action.part or DISK, counted.take)
        _check_whole(counted, action)
        return ActionResult(changed=False)

    def remove(self, action: RemoveBackup, ended: threading.Event) -> ActionResult:
        """Gone already is fine; unchanged where there is no repository."""
        return ActionResult(changed=self._repository(action, ended).remove(action.backup))

    def find(self, action: FindRepositories) -> ActionResult:
        """:raises NotFound: ``backup.no_target``; :raises Fatal: ``backup.failed``; and those of a bucket"""
        names: Iterator[str]
        if action.bucket is not None:
            check_bucket_url(action.bucket.url)
            listing = Objects(action.bucket).names("", directories=True)
            names = (name.removesuffix("/") for name in listing)
        else:
            names = iter(listed(self._mounted(action.target)))
        vms = islice(filter(REPOSITORY.fullmatch, names), _MAX_REPOSITORIES)
        return ActionResult(changed=False, message=json.dumps(list(vms)))

    def list(self, action: ListBackups, ended: threading.Event) -> ActionResult:
        """The newest ones. :raises Fatal: ``backup.password``, ``backup.failed``"""
        listing = self._repository(action, ended).listed(action.tenant)
        return ActionResult(changed=False, message=json.dumps(listing[-_MAX_OF_ONE:]))

    @property
    def handlers(self) -> dict[type[HostAction], Callable[..., ActionResult]]:
        return {
            StoreBackup: self.store,
            FetchBackup: self.fetch,
            FetchVolume: self.fetch_volume,
            VerifyBackup: self.verify,
            RemoveBackup: self.remove,
            FindRepositories: self.find,
            ListBackups: self.list,
        }

    def _repository(self, action: UsesRepository, ended: threading.Event) -> Repository:
        """:raises NotFound: ``backup.no_restic``, ``backup.no_target``: where nothing is mounted it would be the
        host's own disk"""
        vm, common = files.check_file_name(action.of_vm), (action.password, ended, action.limit_s)
        target = self._mounted(action.target) if action.bucket is None else Path()
        if shutil.which("restic", path=PROGRAMS) is None:
            hint = "install the package restic there: 'playbooks/prepare-host.yml' does"
            raise NotFound("backup.no_restic", "restic is not installed on the host", hint=hint)
        if action.bucket is None:
            return MountedRepository(*common, target / vm)
        ca_file = self._written_ca(files.check_file_name(action.target), action.bucket)
        return BucketRepository(*common, action.bucket, vm, ca_file)

    def _mounted(self, name: str) -> Path:
        """:raises NotFound: ``backup.no_target``"""
        target = self.storage.paths.backups / files.check_file_name(name)
        if not is_mounted(self.storage.paths, target):
            hint = f"mount it at {DIRECTORY}/{name} of the agent's directory, /var/lib/vgpuctl-agent"
            raise NotFound("backup.no_target", f"backup target {name} is not mounted on the host", hint=hint)
        return target

    def _written_ca(self, target: str, bucket: Bucket) -> Path:
        """The file of them, which is public; there may be none of a bucket that hosts trust anyway."""
        check_bucket_url(bucket.url)
        file = self.storage.paths.backups / f"{target}.ca.pem"
        if bucket.ca and not (file.is_file() and file.read_text() == bucket.ca):
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with files.written_whole(file, mode=0o600) as part:
                part.write_text(bucket.ca)
        return file


class Sparse:
    """Writes what comes to a file, zeros as holes; None: nowhere. It takes ``most`` bytes and no more."""

    def __init__(self, descriptor: int | None, most: int) -> None:
        self._descriptor, self._most = descriptor, most
        self.size_bytes = 0

    def take(self, piece: bytes) -> None:
        """:raises Conflict: ``backup.larger``"""
        if self.size_bytes + len(piece) > self._most:
            raise Conflict("backup.larger", "the backup is larger than the disk", hint="restore it to a larger one")
        for begin in range(0, len(piece), _HOLE):
            part = piece[begin : begin + _HOLE]
            if self._descriptor is not None and part.count(0) != len(part):
                _write(self._descriptor, part, self.size_bytes + begin)
        self.size_bytes += len(piece)
        if self._descriptor is not None and self.size_bytes % _MEASURED_EVERY < len(piece):
            system = os.fstatvfs(self._descriptor)
            files.check_enough(system.f_bavail * system.f_frsize, os.fstat(self._descriptor).st_blocks * 512)


def _write(descriptor: int, part: bytes, offset: int) -> None:
    while part:
        written = os.pwrite(descriptor, part, offset)
        part, offset = part[written:], offset + written


def _added(repository: Repository, raw: Path, action: StoreBackup) -> ActionResult:
    tags = (action.backup, action.vm_name)
    return ActionResult(
        changed=True, message=repository.add(raw, action.part or DISK, tags, action.max_bytes_per_s)
    )  # fmt: skip


def _check_length(size_bytes: int, action: StoreBackup) -> None:
    """:raises Conflict: ``volume.differs``"""
    if size_bytes != action.size_bytes:
        raise Conflict("volume.differs", "the snapshot is of another size", hint="look at the host")


def _check_whole(read: Sparse, action: UsesRepository) -> None:
    """:raises Fatal: ``backup.damaged``"""
    if read.size_bytes != action.size_bytes:
        hint = "make another one: 'vgpuctl backup run NAME'"
        text = f"the backup holds {read.size_bytes} bytes, not {action.size_bytes}"
        raise Fatal("backup.damaged", text, hint=hint)
