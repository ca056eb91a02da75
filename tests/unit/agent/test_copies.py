# SPDX-License-Identifier: Apache-2.0
"""Copies of disks that take long: whoever wants one is told that it goes on, and whoever wants anything else of the VM
ends it. qemu-img is one that sleeps, libvirt's backups are those of a domain that makes them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent import copies
from orchestrator.agent.images import disk_images
from orchestrator.agent.libvirt import disk_snapshots
from orchestrator.agent.libvirt.disk_snapshots import SnapshotsOfDisks
from orchestrator.agent.performing import Performer
from orchestrator.agent.process import Finished, run
from orchestrator.agent.turns import Turns
from orchestrator.core.actions.backups import ListBackups
from orchestrator.core.actions.disk_snapshots import CopySnapshot, RestoreSnapshot, TakeSnapshot
from orchestrator.core.actions.host_actions import (
    ActionResult,
    DefineDomain,
    DeleteVolume,
    FencingToken,
    HostAction,
)
from orchestrator.core.errors import Conflict, Unknown
from orchestrator.core.vms.disk_snapshot import snapshot_file
from tests.unit.agent.bench import Bench, domain_of
from tests.unit.agent.test_disk_snapshots import SIZE, Backups, Disk

Perform = Callable[..., ActionResult]
_SOON_S = 10.0
"""Far less than what sleeps takes."""


@pytest.fixture
def bench(furnished: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    furnished.do(DefineDomain(vm=furnished.vm, domain=domain_of(furnished.vm)))
    monkeypatch.setattr(copies, "_ROUND_S", 0.1)
    return furnished


@pytest.fixture
def disk(bench: Bench) -> Disk:
    return Disk(bench)


def by(operation: str, attempt: int = 1) -> FencingToken:
    return FencingToken(site="s", epoch=1, operation=operation, attempt=attempt)


def slowly(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """From now on qemu-img sleeps where it is to copy; how each ended."""
    ends: list[str] = []

    def sleeps(argv: list[str], **limits: Any) -> Finished:
        if "convert" not in argv:
            return run(argv, **limits)
        Path(argv[-1]).touch()
        try:
            return run(["sleep", "600"], **limits)
        finally:
            ends.append("ended")

    monkeypatch.setattr(disk_images, "run", sleeps)
    return ends


def performer_of(bench: Bench, domains: Any) -> Performer:
    snapshots = SnapshotsOfDisks(domains, bench.storage, bench.ledger)
    handlers: dict[type[HostAction], Perform] = {TakeSnapshot: snapshots.take, DeleteVolume: snapshots.delete}
    return Performer(bench.ledger, Turns(), bench.wanted, handlers)


def test_another_attempt_finds_it_going_on_and_what_takes_it_back_ends_it(
    bench: Bench, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, ends, perform = disk.names(), slowly(monkeypatch), bench.performer.perform
    for attempt in (1, 2):
        assert perform(disk.take, by("create", attempt)).unfinished
    assert (ends, len(disk.names() - before)) == ([], 1), "one copy"
    begun = time.monotonic()
    assert not perform(DeleteVolume(vm=bench.vm, volume=disk.snapshot), by("create", 2)).changed
    assert time.monotonic() - begun < _SOON_S
    assert (ends, disk.names()) == (["ended"], before)
    assert bench.ledger.owner(f"volume:{disk.snapshot}") is None


@pytest.mark.parametrize("action", ["copy", "restore"])
def test_what_another_operation_wants_of_the_vm_ends_it_and_the_disk_stays(
    bench: Bench, disk: Disk, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    disk.write(65)
    bench.do(disk.take)
    disk.write(66)
    now, before = disk.shows(), disk.names()
    ends, perform = slowly(monkeypatch), bench.performer.perform
    wanted: HostAction = copy_of(bench, disk) if action == "copy" else disk.restore
    assert perform(wanted, by("restore")).unfinished
    assert not perform(DeleteVolume(vm=bench.vm, volume=f"{bench.vm}.memory"), by("stop")).changed
    assert (ends, disk.names()) == (["ended"], before)
    monkeypatch.undo()
    assert disk.shows() == now


def test_of_a_vm_that_runs_libvirt_is_told_to_end_it(bench: Bench, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_snapshots, "_POLL_S", 0.01)
    before, backups = disk.names(), Backups(disk)
    monkeypatch.setattr(Backups, "jobStats", lambda of, _flags=0: {"type": 1 if of.target and not of.aborted else 0})
    performer = performer_of(bench, backups)
    assert performer.perform(disk.take, by("create")).unfinished
    performer.perform(DeleteVolume(vm=bench.vm, volume=disk.snapshot), by("create"))
    assert backups.aborted
    assert disk.names() == before


def test_one_that_does_not_end_is_unknown(bench: Bench, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    slowly(monkeypatch)
    monkeypatch.setattr(copies, "_END_S", 0.0)
    performer, delete = bench.performer, DeleteVolume(vm=bench.vm, volume=disk.snapshot)
    assert performer.perform(disk.take, by("create")).unfinished
    with pytest.raises(Unknown) as hung:
        performer.perform(delete, by("create"))
    assert hung.value.code == "volume.hung"
    monkeypatch.setattr(copies, "_END_S", _SOON_S)
    performer.perform(delete, by("create"))


def test_what_an_agent_had_begun_that_stops_is_not_waited_for(
    bench: Bench, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = slowly(monkeypatch)
    assert bench.performer.perform(disk.take, by("create")).unfinished
    bench.performer.finish()
    deadline = time.monotonic() + _SOON_S
    while not ends and time.monotonic() < deadline:
        time.sleep(0.05)
    assert ends


def copy_of(bench: Bench, disk: Disk, size: int = SIZE, vm: str = "") -> CopySnapshot:
    name = snapshot_file(bench.vm, "3" * 36)
    return CopySnapshot(
        vm=vm or bench.vm, disk=disk.volume, volume=name, of=bench.vm, snapshot=disk.snapshot, size_bytes=size
    )


def test_a_copy_that_is_there_is_put_in_the_disks_place(bench: Bench, disk: Disk) -> None:
    then = disk.shows()
    bench.do(disk.take)
    disk.write(66)
    copy = copy_of(bench, disk)
    assert bench.do(copy).changed
    assert not bench.do(copy).changed
    put = RestoreSnapshot(**{**vars(disk.restore), "copy": copy.volume})
    disk.file.unlink()  # what was copied is enough
    bench.do(put)
    assert disk.shows() == then
    assert copy.volume not in disk.names()
    assert bench.ledger.owner(f"volume:{copy.volume}") is None


def test_where_it_is_gone_another_is_made(bench: Bench, disk: Disk) -> None:
    """As where the answer was lost that it was put there."""
    then = disk.shows()
    bench.do(disk.take)
    put = RestoreSnapshot(**{**vars(disk.restore), "copy": copy_of(bench, disk).volume})
    for _ in range(2):
        disk.write(66)
        bench.do(put)
        assert disk.shows() == then


def test_a_copy_may_be_larger_and_another_vms(bench: Bench, disk: Disk) -> None:
    then = disk.shows()
    bench.do(disk.take)
    copy = copy_of(bench, disk, 2 * SIZE, "another")
    bench.do(copy)
    assert disk.shows(disk.volumes / copy.volume) == then + bytes(SIZE)
    assert bench.storage.image_beneath("another", copy.volume) == bench.storage.image_beneath(bench.vm, disk.volume)
    bench.storage.check_file_of("another", str(disk.volumes / copy.volume))
    bench.do(DeleteVolume(vm="another", volume=copy.volume))
    with pytest.raises(Conflict) as refused:
        bench.do(copy_of(bench, disk, SIZE // 2))
    assert refused.value.code == "volume.differs"


def test_what_is_in_two_targets_is_listed_by_two_operations_at_once(bench: Bench) -> None:
    """Each would begin anew whenever the other one asks."""
    ends: list[str] = []

    def lists(action: ListBackups, ended: threading.Event) -> ActionResult:
        ended.wait(1.0)
        ends.append(f"{action.target} {ended.is_set()}")
        return ActionResult(changed=False, message=action.target)

    handlers: dict[type[HostAction], Perform] = {ListBackups: lists}
    performer = Performer(bench.ledger, Turns(), bench.wanted, handlers)
    wanted = [
        ListBackups(target=target, of_vm=bench.vm, password="p", backup="", size_bytes=0, tenant="default")
        for target in ("nas", "s3")
    ]
    deadline = time.monotonic() + _SOON_S
    while wanted and time.monotonic() < deadline:
        wanted = [each for each in wanted if performer.perform(each, by(f"import {each.target}")).unfinished]
    assert (wanted, sorted(ends)) == ([], ["nas False", "s3 False"])
