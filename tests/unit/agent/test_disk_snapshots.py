# SPDX-License-Identifier: Apache-2.0
"""Snapshots of disks with qemu-img's own files: what was on the disk comes back, and nothing that a disk says of itself
is believed. libvirt's test driver makes no backups: a domain that makes them stands in for one that runs."""

from __future__ import annotations

import subprocess
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import libvirt
import pytest

from orchestrator.agent.images.disk_images import copy_overlay
from orchestrator.agent.libvirt import disk_snapshots
from orchestrator.agent.libvirt.disk_snapshots import SnapshotsOfDisks
from orchestrator.core.actions.disk_snapshots import RestoreSnapshot, TakeSnapshot
from orchestrator.core.actions.host_actions import ActionResult, DefineDomain, DeleteVolume, StartDomain
from orchestrator.core.errors import Conflict, Fatal, NotFound
from orchestrator.core.vms.disk_snapshot import snapshot_file
from tests.fakes.guest_agent import GuestWithAgent
from tests.unit.agent.bench import Bench, domain_of

SIZE = 2**20


def qemu(program: str, *args: str | Path) -> None:
    subprocess.run([program, *map(str, args)], check=True, capture_output=True)


class Disk:
    """Of the bench's VM, and a snapshot of it."""

    def __init__(self, bench: Bench) -> None:
        self.volumes = bench.storage.paths.volumes
        self.volume, self.snapshot = f"{bench.vm}.qcow2", snapshot_file(bench.vm, "1" * 36)
        self.path, self.file = self.volumes / self.volume, self.volumes / self.snapshot
        self.take = TakeSnapshot(vm=bench.vm, disk=self.volume, volume=self.snapshot, size_bytes=SIZE)
        self.restore = RestoreSnapshot(vm=bench.vm, disk=self.volume, volume=self.snapshot, size_bytes=SIZE)

    def write(self, pattern: int, at: str = "0") -> None:
        qemu("qemu-io", "-f", "qcow2", "-c", f"write -P {pattern} {at} 64k", self.path)

    def shows(self, path: Path | None = None) -> bytes:
        out = self.volumes.parent / "shown.raw"
        qemu("qemu-img", "convert", "-f", "qcow2", "-O", "raw", path or self.path, out)
        return out.read_bytes()

    def names(self) -> set[str]:
        return {path.name for path in self.volumes.iterdir()}


@pytest.fixture
def bench(furnished: Bench) -> Bench:
    furnished.do(DefineDomain(vm=furnished.vm, domain=domain_of(furnished.vm)))
    return furnished


@pytest.fixture
def disk(bench: Bench) -> Disk:
    made = Disk(bench)
    made.write(65)
    return made


class Backups:
    """A domain that runs and is copied where libvirt is told to; ``ends``: as what its next backup ends."""

    def __init__(self, disk: Disk, ends: int = libvirt.VIR_DOMAIN_JOB_COMPLETED) -> None:
        self.disk, self.ends, self.looks, self.writes = disk, ends, 0, 0
        self.target: Path | None = None
        self.aborted = 0

    def is_active(self, _vm: str) -> bool:
        return True

    def on_own_domain(self, _vm: str, function: Callable[[Any], Any], **_: Any) -> Any:
        return function(self)

    def XMLDesc(self, _flags: int) -> str:  # noqa: N802 - libvirt's name
        other = "<disk type='file' device='cdrom'><target dev='sda'/></disk>"
        own = f"<disk type='file'><source file='{self.disk.path}'/><target dev='vda'/></disk>"
        return f"<domain><devices>{other}{own}</devices></domain>"

    def backupBegin(self, xml: str, _checkpoint: None, flags: int) -> None:  # noqa: N802
        assert flags == libvirt.VIR_DOMAIN_BACKUP_BEGIN_REUSE_EXTERNAL
        assert self.target is None, "one at a time"
        asked = ET.fromstring(xml).find("disks/disk")
        assert asked is not None
        target = asked.find("target")
        assert target is not None
        assert asked.get("name") == "vda"
        self.target, self.looks = Path(target.get("file", "")), 2
        qemu("qemu-img", "convert", "-f", "qcow2", "-n", "-O", "qcow2", self.disk.path, self.target)
        if self.writes:
            self.disk.write(self.writes)  # the guest goes on

    def jobStats(self, flags: int = 0) -> dict[str, object]:  # noqa: N802
        if flags:
            return {"type": self.ends, "errmsg": "No space left on device"}
        self.looks -= 1
        if self.looks <= 0:
            self.target = None
        return {"type": libvirt.VIR_DOMAIN_JOB_NONE if self.target is None else libvirt.VIR_DOMAIN_JOB_BOUNDED}

    def backupGetXMLDesc(self, _flags: int) -> str:  # noqa: N802
        if self.target is None:
            raise libvirt.libvirtError("no backup job")
        return f"<domainbackup><disks><disk name='vda'><target file='{self.target}'/></disk></disks></domainbackup>"

    def abortJob(self) -> None:  # noqa: N802
        self.aborted, self.looks = self.aborted + 1, 0


def running(bench: Bench, backups: Backups, monkeypatch: pytest.MonkeyPatch) -> Callable[[TakeSnapshot], ActionResult]:
    monkeypatch.setattr(disk_snapshots, "_POLL_S", 0.0)
    domains: Any = backups
    return partial(SnapshotsOfDisks(domains, bench.storage, bench.ledger).take, ended=Event())


def test_a_stopped_vm_has_its_disk_back(bench: Bench, disk: Disk) -> None:
    then = disk.shows()
    done = bench.do(disk.take)
    assert (done.changed, done.message) == (True, "stopped")
    assert not bench.do(disk.take).changed
    (file,) = (file for file in bench.storage.volumes() if file.name == disk.snapshot)
    assert file.owner == bench.vm
    disk.write(66)
    disk.write(67, "256k")
    assert disk.shows() != then
    for _ in range(2):
        bench.do(disk.restore)
        assert disk.shows() == then
    assert bench.storage.image_beneath(bench.vm, disk.volume)
    bench.do(StartDomain(vm=bench.vm))
    bench.do(DeleteVolume(vm=bench.vm, volume=disk.snapshot))
    assert disk.snapshot not in disk.names(), "though the VM runs"
    assert bench.ledger.owner(f"volume:{disk.snapshot}") is None


def test_a_vm_that_runs_is_copied_as_it_was_when_it_began(
    bench: Bench, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    then, backups = disk.shows(), Backups(disk)
    backups.writes = 66
    assert running(bench, backups, monkeypatch)(disk.take).message == "running"
    assert disk.shows(disk.file) == then != disk.shows()
    assert not running(bench, backups, monkeypatch)(disk.take).changed
    bench.do(disk.restore)
    assert disk.shows() == then


class WithGuestAgent(Backups, GuestWithAgent):
    """Notes whether its file systems stood still when each backup began."""

    def __init__(self, disk: Disk) -> None:
        Backups.__init__(self, disk)
        GuestWithAgent.__init__(self)
        self.began: list[bool] = []

    def XMLDesc(self, flags: int = 0) -> str:  # noqa: N802
        return Backups.XMLDesc(self, flags).replace("</devices>", f"{self.channel}</devices>")

    def backupBegin(self, xml: str, checkpoint: None, flags: int) -> None:  # noqa: N802
        self.began.append(self.frozen)
        super().backupBegin(xml, checkpoint, flags)

    def jobStats(self, flags: int = 0) -> dict[str, object]:  # noqa: N802
        assert not self.frozen, "while all is copied"
        return super().jobStats(flags)


def test_a_guest_with_an_agent_is_frozen_when_its_copy_begins_and_that_is_told_also_later(
    bench: Bench, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    backups = WithGuestAgent(disk)
    take = running(bench, backups, monkeypatch)
    done, again = take(disk.take), take(disk.take)
    assert (done.message, done.quiesced, done.changed) == ("running", "yes", True)
    assert (again.message, again.quiesced, again.changed) == ("running", "yes", False)
    assert (backups.began, backups.frozen) == ([True], False)


def test_without_an_agent_that_is_told(bench: Bench, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    assert running(bench, Backups(disk), monkeypatch)(disk.take).quiesced == "no guest agent"
    bench.do(DeleteVolume(vm=bench.vm, volume=disk.snapshot))
    assert bench.do(disk.take).quiesced == "", "of a stopped one there is nothing to say"


def test_a_backup_that_fails_leaves_nothing(bench: Bench, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    before = disk.names()
    with pytest.raises(Fatal) as refused:
        running(bench, Backups(disk, libvirt.VIR_DOMAIN_JOB_FAILED), monkeypatch)(disk.take)
    assert (refused.value.code, refused.value.details) == ("snapshot.failed", "No space left on device")
    assert disk.names() == before
    assert bench.ledger.owner(f"volume:{disk.snapshot}") is None


def test_one_that_an_earlier_attempt_left_is_ended_first(
    bench: Bench, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    backups = Backups(disk)
    backups.target, backups.looks = disk.volumes / f"{disk.snapshot}.part-1", 100
    running(bench, backups, monkeypatch)(disk.take)
    assert backups.aborted == 1
    others = Backups(disk)
    others.target, others.looks = Path("/backup/of-somebody-else"), 100
    bench.do(DeleteVolume(vm=bench.vm, volume=disk.snapshot))
    with pytest.raises(AssertionError, match="one at a time"):
        running(bench, others, monkeypatch)(disk.take)
    assert others.aborted == 0


def test_one_that_does_not_end_is_not_waited_for(bench: Bench, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    backups, seconds = Backups(disk), iter(range(0, 10**6, 20))
    backups.target = disk.volumes / f"{disk.snapshot}.part-1"
    monkeypatch.setattr(Backups, "jobStats", lambda *_: {"type": libvirt.VIR_DOMAIN_JOB_BOUNDED})
    monkeypatch.setattr(time, "monotonic", lambda: next(seconds))
    with pytest.raises(Fatal) as refused:
        running(bench, backups, monkeypatch)(disk.take)
    assert refused.value.details == "an earlier backup of it does not end"


def test_one_that_was_left_is_ended_with_the_file_that_it_was_for(bench: Bench, disk: Disk) -> None:
    """As where what was begun is cancelled once the agent that began it has died: QEMU would fill a file without a
    name."""
    backups: Any = Backups(disk)
    backups.target, backups.looks = disk.volumes / f"{disk.snapshot}.part-1", 100
    snapshots = SnapshotsOfDisks(backups, bench.storage, bench.ledger)
    assert not snapshots.delete(DeleteVolume(vm=bench.vm, volume=f"{bench.vm}.memory")).changed
    assert backups.aborted == 0
    assert not snapshots.delete(DeleteVolume(vm=bench.vm, volume=disk.snapshot)).changed
    assert backups.aborted == 1


def test_a_vm_that_runs_keeps_its_disk(bench: Bench, disk: Disk) -> None:
    bench.do(disk.take)
    bench.do(StartDomain(vm=bench.vm))
    with pytest.raises(Conflict) as refused:
        bench.do(disk.restore)
    assert refused.value.code == "vm.running"


def test_what_is_opened_while_it_is_copied_keeps_its_disk(
    bench: Bench, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.do(disk.take)
    disk.write(66)
    now, copy, held = disk.shows(), copy_overlay, bench.host.paths.proc / "4711" / "fd"

    def copied_when_it_is_opened(*args: Any, **limits: Any) -> None:
        copy(*args, **limits)
        held.mkdir(parents=True)
        (held / "9").symlink_to(disk.path)

    monkeypatch.setattr(disk_snapshots, "copy_overlay", copied_when_it_is_opened)
    with pytest.raises(Conflict) as refused:
        bench.do(disk.restore)
    assert refused.value.code == "volume.in_use"
    assert disk.shows() == now


def test_a_snapshot_goes_while_another_vms_disk_is_copied_from_it(bench: Bench, disk: Disk) -> None:
    """Else deleting it, or its VM, were stuck for as long as that takes."""
    bench.do(disk.take)
    held = bench.host.paths.proc / "4711" / "fd"
    held.mkdir(parents=True)
    (held / "9").symlink_to(disk.file)
    assert bench.do(DeleteVolume(vm=bench.vm, volume=disk.snapshot)).changed
    assert disk.snapshot not in disk.names()


def test_a_backup_that_does_not_end_is_told_of_by_how_long_it_had(
    bench: Bench, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    backups, seconds = Backups(disk), iter(range(0, 10**6, 200))
    monkeypatch.setattr(Backups, "backupBegin", lambda *_: setattr(backups, "target", disk.file))
    monkeypatch.setattr(Backups, "jobStats", lambda *_: {"type": 1 if backups.target and not backups.aborted else 0})
    monkeypatch.setattr(time, "monotonic", lambda: 7000 + next(seconds))
    with pytest.raises(Fatal) as refused:
        running(bench, backups, monkeypatch)(disk.take)
    assert (refused.value.details, backups.aborted) == ("it was not done within 300 s", 1)


@pytest.mark.parametrize("planted", ["disk", "snapshot"])
def test_what_a_file_says_lies_beneath_it_is_not_opened(bench: Bench, disk: Disk, planted: str) -> None:
    """As a QEMU that its guest took over can write it."""
    bench.do(disk.take)
    secret = disk.volumes.parent / "secret.raw"
    secret.write_bytes(b"hidden" * 100_000)
    of = disk.path if planted == "disk" else disk.file
    qemu("qemu-img", "rebase", "-u", "-f", "qcow2", "-b", secret, "-F", "raw", of)
    if planted == "disk":
        bench.do(DeleteVolume(vm=bench.vm, volume=disk.snapshot))
    with pytest.raises(Conflict) as refused:
        bench.do(disk.take if planted == "disk" else disk.restore)
    assert refused.value.code == "vm.file_foreign"
    assert all(b"hidden" not in path.read_bytes() for path in disk.volumes.iterdir())


def test_a_format_that_a_file_says_is_not_believed(bench: Bench, disk: Disk) -> None:
    """The image is raw and is opened so, though its first bytes may be a header that names a file of the host."""
    then = disk.shows()
    image = next(bench.storage.paths.images.iterdir())
    qemu("qemu-img", "rebase", "-u", "-f", "qcow2", "-b", image, "-F", "qcow2", disk.path)
    bench.do(disk.take)
    assert disk.shows(disk.file) == then


def test_without_room_or_a_snapshot_the_disk_stays(bench: Bench, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    then = disk.shows()
    with pytest.raises(NotFound) as gone:
        bench.do(disk.restore)
    assert gone.value.code == "snapshot.missing"
    bench.do(disk.take)
    disk.write(66)
    now = disk.shows()
    monkeypatch.setattr("orchestrator.agent.images.files._BLOCK", 2**50)
    for action in (disk.restore, TakeSnapshot(**{**vars(disk.take), "volume": snapshot_file(bench.vm, "2" * 36)})):
        with pytest.raises(Fatal) as refused:
            bench.do(action)
        assert refused.value.code == "host.disk_full"
    assert disk.shows() == now != then


def test_a_lost_ledger_has_it_again(bench: Bench, disk: Disk) -> None:
    bench.do(disk.take)
    bench.ledger.release(f"volume:{disk.snapshot}")
    bench.storage.settle(bench.vm, disk.volume, f"{bench.vm}.iso")
    owner = bench.ledger.owner(f"volume:{disk.snapshot}")
    assert owner is not None
    assert owner.vm == bench.vm
