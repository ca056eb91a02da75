# SPDX-License-Identifier: Apache-2.0
"""Snapshots of VMs' disks and data volumes: whole files of our own beside them, made and put back without any chain.

Of a VM that runs libvirt copies the disk as it is at the beginning (a backup that it pushes to a file of ours), while
the guest goes on, and its file systems are frozen while that begins where it has a guest agent; of a stopped one
qemu-img does. Either goes to a temporary name first.
"""

from __future__ import annotations

import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import libvirt

from orchestrator.agent.images import files
from orchestrator.agent.images.data_volumes import CopyFile
from orchestrator.agent.images.disk_growth import check_not_larger
from orchestrator.agent.images.disk_images import (
    copy_overlay,
    copy_raw,
    create_empty,
    flatten,
    image_format_of,
    make_larger,
    make_raw,
    read_header,
)
from orchestrator.agent.images.store import Storage
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.libvirt.domains import Domains
from orchestrator.agent.libvirt.guest_agents import GuestAgents
from orchestrator.core.actions.disk_snapshots import (
    CopySnapshot,
    FlattenSnapshot,
    LongCopy,
    RestoreSnapshot,
    TakeSnapshot,
)
from orchestrator.core.actions.host_actions import ActionResult, DeleteVolume, HostAction, ImageFormat
from orchestrator.core.actions.volumes import CopyDataVolume, LinkDataVolume, ReplaceDataVolume
from orchestrator.core.errors import Conflict, Fatal, NotFound, VgpuctlError
from orchestrator.core.hosts.volume_key import is_encrypted
from orchestrator.core.vms.disk_snapshot import SNAPSHOT_FILE, TakenOf

_POLL_S: Final = 0.5
_ABORT_S: Final = 30.0
"""Less than a call of libvirt may take: a thread that waits beyond that is one less for all VMs."""


@dataclass(frozen=True)
class _Copied:
    """``part``: a file of that format, which is there and empty."""

    disk: Path
    part: Path
    kind: ImageFormat


@dataclass(frozen=True)
class SnapshotsOfDisks:
    """The ledger has each file as a volume of its VM, and notes what the VM was when it was taken. ``ended``: set when
    nobody wants a copy any more; it is given up then, whatever is raised."""

    domains: Domains
    storage: Storage
    ledger: Ledger

    def take(self, action: TakeSnapshot, ended: threading.Event) -> ActionResult:
        """:raises NotFound: ``volume.missing``
        :raises Conflict: ``host.foreign_file``, ``vm.file_foreign``, ``volume.differs``: the disk has grown
        :raises Fatal: ``host.disk_full``, ``snapshot.failed``, ``volume.failed``; nothing is left"""
        target = self._file(action.volume)
        if self.storage.is_ours(target, "volume", action.vm):
            owner = self.ledger.owner(_key(target))
            was, _, quiesced = (owner.detail if owner is not None else "").partition(" ")
            return ActionResult(changed=False, message=was or "running", quiesced=quiesced)
        disk, base = self._disk(action.vm, action.disk)
        check_not_larger(disk, action.size_bytes)
        self._check_free(disk, base)
        taken_of: TakenOf = "running" if self.domains.is_active(action.vm) else "stopped"
        quiesced = ""
        limit = action.limit_s
        with ExitStack() as files_made:  # the disk's last: where that is, all are
            files_made.enter_context(self.storage.owned("volume", target, action.vm, taken_of))
            part = files_made.enter_context(files.written_whole(target, mode=0o600))
            data = [files_made.enter_context(self.storage.data.beside_disk(copied)) for copied in action.volumes]
            if taken_of == "running":
                create_empty(part, size_bytes=action.size_bytes)
                for source, copy in data:
                    make_raw(copy, source.stat().st_size)
                disks = (_Copied(disk, part, "qcow2"), *(_Copied(source, copy, "raw") for source, copy in data))
                quiesced = self._copy_running(action.vm, disks, limit, ended)
                self.ledger.claim(_key(target), action.vm, detail=f"{taken_of} {quiesced}")
            else:
                self.storage.check_closed(disk, "volume")
                copy_overlay(disk, part, base=base, base_format=image_format_of(base), limit_s=limit, ended=ended)
                for source, copy in data:
                    copy_raw(source, copy, limit_s=limit, ended=ended)
        return ActionResult(changed=True, message=taken_of, quiesced=quiesced)

    def copy(self, action: CopySnapshot, ended: threading.Event) -> ActionResult:
        """:raises NotFound: ``snapshot.missing``, ``volume.missing``
        :raises Conflict: ``volume.differs``: it is larger; ``host.foreign_file``, ``vm.file_foreign``
        :raises Fatal: ``host.disk_full``, ``volume.failed``; nothing is left"""
        target = self._file(action.volume)
        if self.storage.is_ours(target, "volume", action.vm):
            return ActionResult(changed=False)
        source, (_, base) = self._snapshot(action.of, action.snapshot), self._disk(action.of, action.disk)
        size = read_header(source, "qcow2").virtual_bytes
        if size > action.size_bytes:
            raise Conflict("volume.differs", "the snapshot is of a larger disk", hint="look at the host")
        self._check_free(source)
        limit = action.limit_s
        with (
            self.storage.owned("volume", target, action.vm, base.name),
            files.written_whole(target, mode=0o600) as part,
        ):
            copy_overlay(source, part, base=base, base_format=image_format_of(base), limit_s=limit, ended=ended)
            if size < action.size_bytes:
                make_larger(part, size_bytes=action.size_bytes)
        return ActionResult(changed=True)

    def flatten(self, action: FlattenSnapshot, ended: threading.Event) -> ActionResult:
        """:raises NotFound: ``snapshot.missing``, ``volume.missing``
        :raises Conflict: ``host.foreign_file``, ``vm.file_foreign``
        :raises Fatal: ``host.disk_full``, ``volume.failed``; nothing is left"""
        target = self._file(action.volume)
        if self.storage.is_ours(target, "volume", action.vm):
            return ActionResult(changed=False)
        source, (_, base) = self._snapshot(action.vm, action.snapshot), self._disk(action.vm, action.disk)
        self._check_free(source, base)
        kind, limit = image_format_of(base), action.limit_s
        with self.storage.owned("volume", target, action.vm), files.written_whole(target, mode=0o600) as part:
            flatten(source, part, base=base, base_format=kind, limit_s=limit, ended=ended)
        return ActionResult(changed=True)

    def restore(self, action: RestoreSnapshot, ended: threading.Event) -> ActionResult:
        """Done again it is the same once more.

        :raises NotFound: ``snapshot.missing``, ``volume.missing``
        :raises Conflict: ``vm.running``, ``volume.in_use``, ``volume.differs``, ``host.foreign_file``
        :raises Fatal: ``host.disk_full``, ``volume.failed``; the disk is as it was"""
        if self.domains.is_active(action.vm):
            raise Conflict("vm.running", "the VM is running", hint="stop it first", details=action.vm)
        disk, base = self._disk(action.vm, action.disk)
        self.storage.check_closed(disk, "volume")
        closed = partial(self.storage.check_closed, disk, "volume")  # somebody may start it on the host meanwhile
        copied = self._file(action.copy) if action.copy else None
        with files.written_whole(disk, mode=0o600, check=closed) as part:
            if copied is not None and self.storage.is_ours(copied, "volume", action.vm):
                copied.rename(part)
            else:
                self._copy_back(action, part, base, ended)
        if copied is not None:
            self.ledger.release(_key(copied))
        return ActionResult(changed=True)

    def _copy_back(self, action: RestoreSnapshot, part: Path, base: Path, ended: threading.Event) -> None:
        source = self._snapshot(action.vm, action.volume)
        size = read_header(source, "qcow2").virtual_bytes
        if size > action.size_bytes:
            raise Conflict("volume.differs", "the snapshot is of a larger disk", hint="look at the host")
        self._check_free(source)
        copy_overlay(source, part, base=base, base_format=image_format_of(base), limit_s=action.limit_s, ended=ended)
        if size < action.size_bytes:  # the disk has grown since
            make_larger(part, size_bytes=action.size_bytes)

    def delete(self, action: DeleteVolume) -> ActionResult:
        """Of any file of a VM: of a snapshot with the backup to it which an attempt has left whose agent died.

        :raises Conflict: as ``Storage.delete_volume``"""
        if action.volume.endswith(SNAPSHOT_FILE):
            with suppress(VgpuctlError):  # it is not defined, or libvirt is away: it ends by itself
                self._end_backup(action.vm)
        return self.storage.delete_volume(action.vm, action.volume)

    @property
    def handlers(self) -> dict[type[HostAction], Callable[..., ActionResult]]:
        """Of what copies a disk or data volume, and removes a VM's file."""
        return {
            DeleteVolume: self.delete,
            TakeSnapshot: self.take,
            CopySnapshot: self.copy,
            FlattenSnapshot: self.flatten,
            RestoreSnapshot: self.restore,
            CopyDataVolume: self.copy_data,
            ReplaceDataVolume: self.replace_data,
            LinkDataVolume: self.storage.data.link,
        }

    def _file(self, name: str) -> Path:
        return self.storage.paths.volumes / files.check_file_name(name)

    def _snapshot(self, vm: str, name: str) -> Path:
        source = self._file(name)
        if not self.storage.is_ours(source, "volume", vm):
            hint = "'vgpuctl vm snapshot delete NAME SNAPSHOT' ends the record of it"
            raise NotFound("snapshot.missing", "the snapshot is not on the host", hint=hint, details=source.name)
        return source

    def _disk(self, vm: str, name: str) -> tuple[Path, Path]:
        """It, and the image that it was made on. What QEMU copies of an encrypted one would be as the guest sees it.

        :raises Conflict: ``snapshot.encrypted``"""
        if is_encrypted(name):
            raise Conflict("snapshot.encrypted", "an encrypted disk is not copied", hint="copy its files in the guest")
        disk = self.storage.disk_path(name)
        image = self.storage.image_beneath(vm, name)
        if image is None or not disk.exists():
            raise NotFound("volume.missing", "the VM's disk is not on the host", hint="look at the host")
        self.storage.check_file_of(vm, str(disk))
        return disk, self.storage.paths.images / image

    def _check_free(self, *copied: Path) -> None:
        files.check_free(self.storage.paths.volumes, sum(map(files.taken, copied)))

    def copy_data(self, action: CopyDataVolume, ended: threading.Event) -> ActionResult:
        """As ``DataVolumes.copy``; :raises Fatal: ``snapshot.failed``"""
        return self.storage.data.copy(action, self._raw(action, ended))

    def replace_data(self, action: ReplaceDataVolume, ended: threading.Event) -> ActionResult:
        """As ``DataVolumes.replace``."""
        return self.storage.data.replace(action, self._raw(action, ended))

    def _raw(self, action: LongCopy, ended: threading.Event) -> CopyFile:
        def copy(vm: str | None, source: Path, part: Path) -> str:
            if vm is not None and self.domains.is_active(vm):
                make_raw(part, source.stat().st_size)
                return self._copy_running(vm, (_Copied(source, part, "raw"),), action.limit_s, ended)
            copy_raw(source, part, limit_s=action.limit_s, ended=ended)
            return ""

        return copy

    def _copy_running(self, vm: str, disks: Sequence[_Copied], limit_s: int, ended: threading.Event) -> str:
        """As the disks are when it begins, all at the same moment. How it was with the guest's file systems then."""
        self._end_backup(vm)
        try:
            quiesced = GuestAgents(self.domains, self.ledger).quiesce(
                vm,
                lambda: self.domains.on_own_domain(vm, lambda domain: _begin(domain, disks), **_FAILED),
            )
            self._wait(vm, limit_s, ended)
        except BaseException:
            with suppress(VgpuctlError):
                self._end_backup(vm)
            raise
        return quiesced

    def _wait(self, vm: str, limit_s: float, ended: threading.Event) -> None:
        deadline = time.monotonic() + limit_s
        while (stats := self.domains.on_own_domain(vm, _backup_stats, **_FAILED)) is None:
            if time.monotonic() > deadline:
                raise _failed(f"it was not done within {limit_s:.0f} s")
            if ended.wait(_POLL_S):
                raise _failed("it was given up")
        if stats.get("type") != libvirt.VIR_DOMAIN_JOB_COMPLETED:
            raise _failed(str(stats.get("errmsg") or "libvirt gave it up"))

    def _end_backup(self, vm: str) -> None:
        """One of ours that an earlier attempt has left. Its file is removed by whoever made it."""
        self.domains.on_own_domain(vm, lambda domain: _abort(domain, self.storage.directory), **_FAILED)


_FAILED: Final = {
    "code": "snapshot.failed",
    "message": "the disk of the VM that runs was not copied",
    "hint": "the details hold what libvirt said; 'vgpuctl stop-vm NAME' stops it, and its disk can be copied then",
}


def _failed(details: str) -> Fatal:
    return Fatal(_FAILED["code"], _FAILED["message"], hint=_FAILED["hint"], details=details)


def _begin(domain: Any, copied: Sequence[_Copied]) -> None:
    root = ET.fromstring(domain.XMLDesc(0))  # noqa: S314 - libvirt's own
    backup = ET.Element("domainbackup", mode="push")
    disks = ET.SubElement(backup, "disks")
    for each in copied:
        of_file = [
            item for item in root.iterfind("devices/disk") if _attribute(item, "source", "file") == str(each.disk)
        ]
        names = [_attribute(item, "target", "dev") for item in of_file]
        if len(names) != 1:
            raise _failed(f"the domain has {len(names)} disks that are {each.disk}")
        of_disk = ET.SubElement(disks, "disk", name=names[0], backup="yes", type="file")
        ET.SubElement(of_disk, "driver", type=each.kind)
        ET.SubElement(of_disk, "target", file=str(each.part))
    domain.backupBegin(ET.tostring(backup, encoding="unicode"), None, libvirt.VIR_DOMAIN_BACKUP_BEGIN_REUSE_EXTERNAL)


def _attribute(disk: ET.Element, child: str, name: str) -> str:
    """``""``: it has none."""
    element = disk.find(child)
    return "" if element is None else element.get(name, "")


def _backup_stats(domain: Any) -> dict[str, Any] | None:
    """How it ended; None: it goes on."""
    if domain.jobStats(0).get("type") != libvirt.VIR_DOMAIN_JOB_NONE:
        return None
    return dict(domain.jobStats(libvirt.VIR_DOMAIN_JOB_STATS_COMPLETED))


def _abort(domain: Any, directory: Path) -> None:
    """A backup to a file below ``directory``, if there is one; it is over then. :raises Fatal: ``snapshot.failed``"""
    try:
        backup = ET.fromstring(domain.backupGetXMLDesc(0))  # noqa: S314 - libvirt's own
    except libvirt.libvirtError:  # there is none
        return
    if any(directory in Path(target.get("file", "")).parents for target in backup.iterfind("disks/disk/target")):
        domain.abortJob()
        deadline = time.monotonic() + _ABORT_S
        while domain.jobStats(0).get("type") != libvirt.VIR_DOMAIN_JOB_NONE:
            if time.monotonic() > deadline:
                raise _failed("an earlier backup of it does not end")
            time.sleep(_POLL_S)


def _key(file: Path) -> str:
    return f"volume:{file.name}"
