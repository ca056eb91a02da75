# SPDX-License-Identifier: Apache-2.0
"""A VM's disk and its data volumes are copied at one moment, with qemu-img's own files: all of them, or none."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import libvirt
import pytest

from orchestrator.agent.libvirt import disk_snapshots
from orchestrator.agent.libvirt.disk_snapshots import SnapshotsOfDisks
from orchestrator.core.actions.disk_snapshots import CopiedVolume, TakeSnapshot
from orchestrator.core.actions.host_actions import ActionResult, DefineDomain, DeleteVolume
from orchestrator.core.actions.volumes import AttachVolume, CreateDataVolume, DeleteDataVolume
from orchestrator.core.errors import Fatal, NotFound
from tests.unit.agent.bench import Bench, domain_of
from tests.unit.agent.test_data_volumes import FILE, OTHER, SIZE, content, fill, refused
from tests.unit.agent.test_disk_snapshots import Backups, Disk, qemu

COPY = f"before.{OTHER}.raw"


@pytest.fixture
def bench(furnished: Bench) -> Bench:
    furnished.do(DefineDomain(vm=furnished.vm, domain=domain_of(furnished.vm)))
    furnished.do(CreateDataVolume(volume=FILE, size_bytes=SIZE))
    furnished.do(AttachVolume(vm=furnished.vm, volume=FILE))
    fill(furnished.storage.paths.data / FILE, b"old")
    return furnished


@pytest.fixture
def disk(bench: Bench) -> Disk:
    made = Disk(bench)
    made.write(65)
    made.take = TakeSnapshot(**{**vars(made.take), "volumes": (CopiedVolume(volume=COPY, of=FILE, size_bytes=SIZE),)})
    return made


class Guest(Backups):
    """It writes to both as soon as a backup has begun."""

    def __init__(self, disk: Disk, data: Path, ends: int = libvirt.VIR_DOMAIN_JOB_COMPLETED) -> None:
        super().__init__(disk, ends)
        self.data, self.begun = data, 0

    def XMLDesc(self, flags: int) -> str:  # noqa: N802
        data = f"<disk type='file'><source file='{self.data}'/><target dev='vdb'/></disk>"
        return super().XMLDesc(flags).replace("</devices>", f"{data}</devices>")

    def backupBegin(self, xml: str, _checkpoint: None, _flags: int) -> None:  # noqa: N802
        targets = {}
        for item in ET.fromstring(xml).iterfind("disks/disk"):
            target, driver = item.find("target"), item.find("driver")
            assert target is not None
            assert driver is not None
            targets[item.get("name")] = target.get("file", ""), driver.get("type")
        assert {name: kind for name, (_, kind) in targets.items()} == {"vda": "qcow2", "vdb": "raw"}
        self.begun += 1
        self.target, self.looks = Path(targets["vda"][0]), 2
        qemu("qemu-img", "convert", "-f", "qcow2", "-n", "-O", "qcow2", self.disk.path, self.target)
        qemu("qemu-img", "convert", "-f", "raw", "-n", "-O", "raw", self.data, targets["vdb"][0])
        self.disk.write(66)
        fill(self.data, b"new")


def running(bench: Bench, guest: Guest, monkeypatch: pytest.MonkeyPatch) -> Callable[[TakeSnapshot], ActionResult]:
    monkeypatch.setattr(disk_snapshots, "_POLL_S", 0.0)
    domains: Any = guest
    return partial(SnapshotsOfDisks(domains, bench.storage, bench.ledger).take, ended=Event())


def names(bench: Bench) -> set[str]:
    return {path.name for path in bench.storage.paths.data.iterdir()}


def test_of_a_stopped_vm_all_are_copied_and_removed(bench: Bench, disk: Disk) -> None:
    assert [bench.do(disk.take).changed for _ in range(2)] == [True, False]
    data = bench.storage.paths.data
    assert content(data / COPY) == content(data / FILE)
    assert bench.storage.data.user(COPY) is None
    bench.do(DeleteVolume(vm=bench.vm, volume=disk.snapshot))
    bench.do(DeleteDataVolume(volume=COPY))
    assert names(bench) == {FILE}


def test_of_one_that_runs_all_are_as_at_one_moment(bench: Bench, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    data = bench.storage.paths.data
    then, data_then, guest = disk.shows(), content(data / FILE), Guest(disk, data / FILE)
    take = running(bench, guest, monkeypatch)
    assert [take(disk.take).changed for _ in range(2)] == [True, False]
    assert guest.begun == 1, "one backup has both"
    assert disk.shows(disk.file) == then != disk.shows()
    assert content(data / COPY) == data_then != content(data / FILE)


def test_a_backup_that_fails_leaves_none_of_them(bench: Bench, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    before = disk.names()
    guest = Guest(disk, bench.storage.paths.data / FILE, libvirt.VIR_DOMAIN_JOB_FAILED)
    refused("snapshot.failed", Fatal, lambda: running(bench, guest, monkeypatch)(disk.take))
    assert (disk.names(), names(bench)) == (before, {FILE})
    assert bench.ledger.owner(f"data:{COPY}") is None


def test_a_volume_that_is_not_there_leaves_none_of_them(bench: Bench, disk: Disk) -> None:
    before = disk.names()
    gone = CopiedVolume(volume=f"before.{'4' * 8}{OTHER[8:]}.raw", of=f"gone.{OTHER}.raw", size_bytes=SIZE)
    take = TakeSnapshot(**{**vars(disk.take), "volumes": (*disk.take.volumes, gone)})
    refused("volume.missing", NotFound, lambda: bench.do(take))
    assert (disk.names(), names(bench)) == (before, {FILE})


def test_a_copy_of_an_attempt_that_died_between_two_is_not_taken_for_this_moment(bench: Bench, disk: Disk) -> None:
    bench.do(disk.take)
    disk.file.unlink()
    bench.ledger.release(f"volume:{disk.snapshot}")
    data = bench.storage.paths.data
    fill(data / FILE, b"later")
    assert bench.do(disk.take).changed
    assert content(data / COPY) == content(data / FILE)
