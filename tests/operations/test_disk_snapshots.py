# SPDX-License-Identifier: Apache-2.0
"""What snapshots hold and hold up, what is refused about them, and that a VM has its disk back by them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.errors import Conflict, InvalidInput, NoCapacity, NotFound, QuotaExceeded
from orchestrator.core.tenancy.quota import Limit
from orchestrator.core.units import GIB, MIB
from orchestrator.core.vms.disk_snapshot import MAX_OF_VM, DiskSnapshot, snapshot_file
from orchestrator.core.vms.lease import WantedEnd
from orchestrator.core.vms.vm import Vm
from orchestrator.services.messages import MoveVm, ResizeVm, Started
from orchestrator.services.vms.vms import VmService
from tests.fakes.control_plane import T4_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.fake_data_volumes import guest_agent_of
from tests.fakes.recount import miscounted
from tests.operations import disk_snapshots as own
from tests.operations.suspending import delete, running, suspend


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    made = control_plane(tmp_path)
    own.with_snapshot(running(T4_HOST))(made)
    yield made
    made.store.close()


def vm_of(plane: ControlPlane) -> Vm:
    return plane.services.vms.get("default", "train")


def do(plane: ControlPlane, begin: Callable[[ControlPlane], object]) -> None:
    begin(plane)
    plane.engine.drain()


def disk_held(plane: ControlPlane) -> tuple[int, int]:
    """What is claimed of the host's disk, in bytes, and of the tenant's quota, in MiB."""
    with plane.store.read() as tx:
        assert not list(miscounted(tx))
        (claim,) = tx.claims.list()
        return claim.disk_bytes, tx.quotas.used("default")["disk"]


def test_each_holds_room_for_the_whole_disk_until_it_is_deleted(plane: ControlPlane) -> None:
    vm = vm_of(plane)
    (snapshot,) = vm.snapshots
    size = vm.spec.disk_bytes
    assert (snapshot.name, snapshot.taken_of, snapshot.size_bytes) == (own.NAME, "running", size)
    assert (vm.state, vm.wanted) == ("running", "running")
    assert disk_held(plane) == (2 * size, 2 * size // MIB)
    file = snapshot_file(vm.id, snapshot.id)
    assert file in plane.machine(T4_HOST).volumes
    do(plane, own.remove)
    assert vm_of(plane).snapshots == ()
    assert disk_held(plane) == (size, size // MIB)
    assert file not in plane.machine(T4_HOST).volumes


@pytest.mark.parametrize(
    ("said", "kept", "told"),
    [
        ("yes", "yes", "its file systems were frozen"),
        ("no guest agent", "no guest agent", "as after a power cut: no guest agent"),
        (
            "guest agent refused: \x1b[2J",
            "guest agent refused: ?[2J",
            "as after a power cut: guest agent refused: ?[2J",
        ),
        ("trust me", "guest agent refused: trust me", "guest agent refused: trust me"),
        ("", None, "as after a power cut"),
    ],
    ids=["frozen", "none", "escapes", "no word of ours", "an older agent"],
)
def test_what_was_frozen_is_told(plane: ControlPlane, said: str, kept: str | None, told: str) -> None:
    plane.machine(T4_HOST).written[guest_agent_of(vm_of(plane).id)] = said
    operation = own.take(plane, "frozen")
    plane.engine.drain()
    assert vm_of(plane).snapshots[-1].quiesced == kept
    (step,) = (step for step in plane.services.operations.get(str(operation)).steps if step.name == "take_snapshot.1")
    assert step.message.endswith(told)


def test_it_is_put_in_the_disks_place_of_a_stopped_vm_alone(plane: ControlPlane) -> None:
    machine, vm = plane.machine(T4_HOST), vm_of(plane)
    with pytest.raises(Conflict) as refused:
        own.restore(plane)
    assert (refused.value.code, refused.value.hint) == (
        "vm.busy", "'vgpuctl stop-vm train --tenant default' stops it",
    )  # fmt: skip
    before = machine.written[vm.volume]
    machine.written[vm.volume] = "written since"
    do(plane, lambda p: p.services.vms.stop("default", "train"))
    do(plane, own.restore)
    assert machine.written[vm.volume] == before
    assert len(vm_of(plane).snapshots) == 1, "it can be put back again"
    do(plane, lambda p: p.services.vms.start("default", "train"))
    assert vm_of(plane).state == "running"


@pytest.mark.parametrize("begin", [lambda p: own.take(p, "another"), own.restore], ids=["taking", "going back"])
@pytest.mark.parametrize("ends", ["cancel", "delete"])
def test_a_copy_that_goes_on_is_ended_by_a_cancel_and_by_a_delete_of_the_vm(
    plane: ControlPlane,
    monkeypatch: pytest.MonkeyPatch,
    begin: Callable[[ControlPlane], str],
    ends: str,
) -> None:
    do(plane, lambda p: p.services.vms.stop("default", "train"))
    machine, vm = plane.machine(T4_HOST), vm_of(plane)
    before, operation = machine.state(), begin(plane)
    looks: list[list[str]] = []

    def between_two_looks(_seconds: float) -> None:
        looks.append(list(machine.copying))
        machine.copying.clear()  # so that it is not done when it is asked for next
        if ends == "cancel":
            plane.services.operations.cancel(operation)
        else:
            delete(plane)

    with monkeypatch.context() as while_it_is_copied:
        while_it_is_copied.setattr(plane.world.clock, "sleep", between_two_looks)
        plane.engine.drain()
    assert [vm.id] in looks
    ended = plane.services.operations.get(operation)
    assert (ended.state, (ended.error or {})["code"]) == ("undone", "operation.cancelled")
    if ends == "cancel":
        assert machine.state() == before
        assert (vm_of(plane).state, vm_of(plane).snapshots) == ("stopped", vm.snapshots)
        assert disk_held(plane)[0] == 2 * vm.spec.disk_bytes
    else:
        assert (machine.volumes, machine.copying) == ({}, {})


def test_what_is_copied_back_has_its_room_until_it_is_in_the_disks_place(plane: ControlPlane) -> None:
    do(plane, lambda p: p.services.vms.stop("default", "train"))
    vm = vm_of(plane)
    size = vm.spec.disk_bytes
    with plane.store.begin() as tx:
        tx.quotas.put(Limit(tenant="default", resource="disk", amount=2 * size // MIB))
    operation = own.restore(plane)
    assert disk_held(plane)[0] == 3 * size, "whatever the tenant may have for good"
    assert [its.taken_of for its in vm_of(plane).snapshots] == ["running", None]
    plane.engine.drain()
    assert plane.services.operations.get(str(operation)).state == "done"
    assert vm_of(plane).snapshots == vm.snapshots
    assert disk_held(plane)[0] == 2 * size
    plane.machine(T4_HOST).free_bytes = 0
    plane.observer.observe(T4_HOST)
    with pytest.raises(NoCapacity) as full:
        own.restore(plane)
    assert full.value.code == "host.disk"


def test_a_file_that_is_gone_changes_nothing(plane: ControlPlane) -> None:
    vm = vm_of(plane)
    do(plane, lambda p: p.services.vms.stop("default", "train"))
    del plane.machine(T4_HOST).volumes[snapshot_file(vm.id, vm.snapshots[0].id)]
    operation = own.restore(plane)
    plane.engine.drain()
    ended = plane.services.operations.get(str(operation))
    assert (ended.state, (ended.error or {})["code"]) == ("undone", "snapshot.missing")
    assert vm_of(plane).state == "stopped"


def test_a_file_that_is_gone_and_one_that_the_database_lacks_are_told_of(plane: ControlPlane) -> None:
    machine, vm = plane.machine(T4_HOST), vm_of(plane)
    assert plane.findings.observe(T4_HOST) == ()
    file, stranger = snapshot_file(vm.id, vm.snapshots[0].id), snapshot_file(vm.id, "0" * 36)
    machine.volumes[stranger] = machine.volumes.pop(file)
    found = {one.finding.code: one.finding for one in plane.findings.observe(T4_HOST)}
    assert set(found) == {"vm.snapshot_missing", "vm.snapshot_unknown"}
    assert stranger in found["vm.snapshot_unknown"].observed
    assert all(one.repair is None for one in found.values()), "nothing is removed by itself"
    assert f"'vgpuctl vm snapshot delete train {own.NAME} --tenant default'" in found["vm.snapshot_missing"].reason
    do(plane, own.remove)
    assert [one.finding.code for one in plane.findings.observe(T4_HOST)] == ["vm.snapshot_unknown"]
    do(plane, delete)
    assert machine.volumes == {}
    assert plane.findings.observe(T4_HOST) == ()


def test_a_vm_that_has_one_does_not_move_to_another_host_but_may_be_suspended(plane: ControlPlane) -> None:
    with pytest.raises(Conflict) as refused:
        plane.services.moving.move(MoveVm(name="train", tenant="default", cold=True))
    moves = plane.services.moves.own("default", "train")
    assert all("move.snapshots" in {limit.code for limit in verdict.limits} for verdict in moves)
    assert refused.value.hint
    do(plane, suspend)
    assert vm_of(plane).suspended_bytes is not None


def test_what_has_given_its_place_back_keeps_room_for_them(tmp_path: Path) -> None:
    plane = control_plane(tmp_path)
    plane.add_host(T4_HOST)
    plane.services.vms.create(replace(create_vm(profile="GRID T4-2Q"), end=WantedEnd(after_s=3600)))
    plane.engine.drain()
    do(plane, own.take)
    plane.world.clock.sleep(3600)
    do(plane, lambda p: p.reconciler.leases.end_leases(T4_HOST))
    assert vm_of(plane).deallocated == "lease_over"
    do(plane, lambda p: own.take(p, "after"))
    plane.services.vms.extend("default", "train", WantedEnd(after_s=3600))
    do(plane, lambda p: p.services.vms.start("default", "train"))
    assert vm_of(plane).state == "running"
    assert disk_held(plane)[0] == 3 * vm_of(plane).spec.disk_bytes
    plane.store.close()


def test_one_that_is_begun_while_a_place_is_claimed_again_keeps_its_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane = control_plane(tmp_path)
    plane.add_host(T4_HOST)
    plane.services.vms.create(replace(create_vm(profile="GRID T4-2Q"), end=WantedEnd(after_s=3600)))
    plane.engine.drain()
    plane.world.clock.sleep(3600)
    do(plane, lambda p: p.reconciler.leases.end_leases(T4_HOST))
    plane.services.vms.extend("default", "train", WantedEnd(after_s=3600))
    taken: list[str | None] = []
    begin = VmService._begin_start

    def late(*args: Any) -> Started:
        if not taken:
            taken.append(own.take(plane))
        return begin(*args)

    monkeypatch.setattr(VmService, "_begin_start", late)
    do(plane, lambda p: p.services.vms.start("default", "train"))
    assert vm_of(plane).state == "running"
    assert disk_held(plane)[0] == 2 * vm_of(plane).spec.disk_bytes
    plane.store.close()


def test_what_goes_while_the_vm_becomes_another_size_is_free(plane: ControlPlane) -> None:
    """As where an operation that got stuck with it is abandoned then."""
    vm = vm_of(plane)
    resized = ResizeVm(name="train", tenant="default", profile="GRID T4-4Q", vcpus=0, memory_mib=0, restart=True)
    plane.services.resizing.resize(resized)
    with plane.store.begin() as tx:
        tx.disk_snapshots.remove(vm.id, vm.snapshots[0].id)
    plane.engine.drain()
    assert vm_of(plane).spec.profile == "GRID T4-4Q"
    assert disk_held(plane)[0] == vm.spec.disk_bytes


def test_a_delete_of_the_vm_takes_all_along(plane: ControlPlane) -> None:
    do(plane, delete)
    assert plane.machine(T4_HOST).volumes == {}
    with plane.store.read() as tx:
        assert tx.quotas.used("default")["disk"] == 0
        assert not list(miscounted(tx))


def test_what_is_one_too_many_or_has_no_room_is_refused_before_it_is_begun(plane: ControlPlane) -> None:
    with pytest.raises(Conflict) as refused:
        own.take(plane)
    assert refused.value.code == "snapshot.exists"
    with pytest.raises(NotFound) as unknown:
        plane.services.disk_snapshots.delete("default", "train", "befor")
    assert (unknown.value.code, "before" in (unknown.value.hint or "")) == ("snapshot.unknown", True)
    vm = vm_of(plane)
    with plane.store.begin() as tx:
        tx.quotas.put(Limit(tenant="default", resource="disk", amount=2 * vm.spec.disk_bytes // MIB))
    with pytest.raises(QuotaExceeded):
        own.take(plane, "another")
    with plane.store.begin() as tx:
        tx.quotas.put(Limit(tenant="default", resource="disk", amount=10**9))
    plane.machine(T4_HOST).free_bytes = GIB
    plane.observer.observe(T4_HOST)
    with pytest.raises(NoCapacity) as full:
        own.take(plane, "another")
    assert full.value.code == "host.disk"
    more = tuple(
        DiskSnapshot(id=f"{number:036}", name=f"s{number}", size_bytes=1, created_at=0.0, taken_of="stopped")
        for number in range(MAX_OF_VM - 1)
    )
    with plane.store.begin() as tx:
        tx.vms.change(vm.id, snapshots=(*vm.snapshots, *more))
    with pytest.raises(Conflict) as many:
        own.take(plane, "another")
    assert many.value.code == "snapshot.too_many"
    assert len(vm_of(plane).snapshots) == MAX_OF_VM


def test_one_that_was_not_taken_to_its_end_is_not_put_back(plane: ControlPlane) -> None:
    do(plane, lambda p: p.services.vms.stop("default", "train"))
    vm = vm_of(plane)
    with plane.store.begin() as tx:
        tx.vms.change(vm.id, snapshots=(replace(vm.snapshots[0], taken_of=None),))
    with pytest.raises(Conflict) as refused:
        own.restore(plane)
    assert refused.value.code == "snapshot.unfinished"
    assert "'vgpuctl vm snapshot delete train --tenant default before'" in str(refused.value.hint)


def test_a_vm_that_is_called_as_anothers_id_is_not_taken_for_it(plane: ControlPlane) -> None:
    vm = vm_of(plane)
    plane.services.vms.create(replace(create_vm(profile="GRID T4-2Q"), name=vm.id))
    plane.engine.drain()
    do(plane, lambda p: own.take(p, "another"))
    assert [snapshot.taken_of for snapshot in vm_of(plane).snapshots] == ["running", "running"]
    assert plane.services.vms.get("default", vm.id).operation != vm_of(plane).operation


def test_a_disk_that_grows_is_claimed_at_once_and_done_again_is_done_already(plane: ControlPlane) -> None:
    size = vm_of(plane).spec.disk_bytes
    do(plane, own.grow)
    vm = vm_of(plane)
    assert (vm.state, vm.spec.disk_bytes) == ("running", own.GROWN)
    assert disk_held(plane) == (own.GROWN + size, (own.GROWN + size) // MIB), "the disk and its snapshot"
    assert plane.machine(T4_HOST).volumes[vm.volume][1] == own.GROWN
    assert plane.services.disk_growth.resize("default", "train", own.GROWN).operation is None
    with pytest.raises(InvalidInput) as refused:
        plane.services.disk_growth.resize("default", "train", size)
    assert refused.value.code == "disk.shrinks"
    do(plane, lambda p: p.services.vms.stop("default", "train"))
    do(plane, own.restore)
    assert vm_of(plane).spec.disk_bytes == own.GROWN, "and what is put in its place has its size"
    do(plane, delete)
    with plane.store.read() as tx:
        assert not list(miscounted(tx))
        assert tx.quotas.used("default")["disk"] == 0


def test_a_disk_grows_neither_beyond_its_host_nor_beyond_its_tenants_quota(plane: ControlPlane) -> None:
    held, size = disk_held(plane), vm_of(plane).spec.disk_bytes
    with pytest.raises(NoCapacity) as full:
        plane.services.disk_growth.resize("default", "train", 60 * 1024 * GIB)
    assert full.value.code == "host.disk"
    with plane.store.begin() as tx:
        tx.quotas.put(Limit(tenant="default", resource="disk", amount=2 * size // MIB))
    with pytest.raises(QuotaExceeded):
        own.grow(plane)
    assert (disk_held(plane), vm_of(plane).spec.disk_bytes) == (held, size)
