# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import Fatal, NotFound, VgpuctlError
from orchestrator.core.vms.vm import Vm
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.fake_host import no_fault
from tests.fakes.fake_machine import FakeMachine

FOREIGN = "f0000000-0000-4000-8000-000000000000"
DAY = 24 * 3600.0


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    made = control_plane(tmp_path)
    made.add_host(T4_HOST)
    yield made
    made.reconciler.close()
    made.store.close()


def made(plane: ControlPlane, *, start: bool = True, profile: str = "GRID T4-2Q") -> Vm:
    plane.services.vms.create(create_vm(start=start, profile=profile))
    plane.engine.drain()
    return plane.services.vms.get("default", "train")


def codes(plane: ControlPlane, host: str = T4_HOST) -> list[str]:
    return [one.finding.code for one in plane.findings.observe(host)]


def destroy(machine: FakeMachine, vm: str) -> None:
    machine.domains[vm] = (machine.domains[vm][0], False)


def start(machine: FakeMachine, vm: str) -> None:
    machine.domains[vm] = (machine.domains[vm][0], True)


def undefine(machine: FakeMachine, vm: str) -> None:
    del machine.domains[vm]


def lose_device(machine: FakeMachine, vm: str) -> None:
    assert vm
    machine.mdevs.clear()


def lose_disk(machine: FakeMachine, vm: str) -> None:
    del machine.volumes[f"{vm}.qcow2"]


def lose_seed(machine: FakeMachine, vm: str) -> None:
    del machine.seeds[f"{vm}.iso"]


def rename(machine: FakeMachine, vm: str) -> None:
    xml, running = machine.domains[vm]
    machine.domains[vm] = (xml.replace("default.train", "other"), running)


@pytest.mark.parametrize("begin_running", [True, False])
def test_a_vm_that_is_as_wanted_is_not_spoken_of(plane: ControlPlane, *, begin_running: bool) -> None:
    made(plane, start=begin_running)
    assert codes(plane) == []


@pytest.mark.fault("F37")
@pytest.mark.parametrize(
    ("harm", "running", "expected"),
    [
        (destroy, True, ["vm.not_running"]),
        (start, False, ["vm.device_missing", "vm.running"]),
        (undefine, True, ["vm.domain_missing"]),
        (undefine, False, ["vm.domain_missing"]),
        (lose_device, True, ["vm.device_missing"]),
        (lose_disk, True, ["vm.volume_missing"]),
        (lose_seed, False, ["vm.seed_missing"]),
        (rename, True, ["vm.definition_changed"]),
    ],
)
def test_what_somebody_changed_on_the_host_is_found(
    plane: ControlPlane, harm: Callable[[FakeMachine, str], None], *, running: bool, expected: list[str]
) -> None:
    vm = made(plane, start=running)
    harm(plane.machine(T4_HOST), vm.id)
    before = plane.machine(T4_HOST).state()
    assert codes(plane) == expected
    plane.engine.drain()
    assert plane.machine(T4_HOST).state() == before, "nothing of it is repaired unasked"


@pytest.mark.fault("F35")
def test_a_vm_destroyed_from_outside_runs_again_when_repairs_are_asked_for(plane: ControlPlane) -> None:
    vm = made(plane)
    destroy(plane.machine(T4_HOST), vm.id)
    assert codes(plane) == ["vm.not_running"]
    assert len(plane.findings.repair(host=None)) == 1
    assert plane.findings.repair(host=None) == (), "one repair at a time"
    plane.engine.drain()
    assert plane.machine(T4_HOST).domains[vm.id][1]
    assert codes(plane) == []


def test_stopping_a_vm_whose_guest_has_shut_itself_down_says_that_it_is_to_stay_so(plane: ControlPlane) -> None:
    vm = made(plane)
    machine = plane.machine(T4_HOST)
    destroy(machine, vm.id)
    assert codes(plane) == ["vm.not_running"]
    plane.services.vms.stop("default", "train")
    plane.engine.drain()
    assert (codes(plane), machine.mdevs) == ([], {})
    assert plane.services.vms.stop("default", "train").operation is None


def test_a_start_that_was_undone_leaves_the_vm_wanted_as_it_was_before(plane: ControlPlane) -> None:
    vm = made(plane)
    destroy(plane.machine(T4_HOST), vm.id)
    assert codes(plane) == ["vm.not_running"]

    def refuse(_number: int, moment: str, name: str) -> VgpuctlError | None:
        return Fatal("vm.start_failed", "no") if (moment, name) == ("before", "StartDomain") else None

    plane.hosts.strike = refuse
    plane.services.vms.start("default", "train")
    plane.engine.drain()
    plane.hosts.strike = no_fault
    assert plane.services.vms.get("default", "train").wanted == "running"
    assert "vm.not_running" in codes(plane)


def test_a_vm_that_is_being_deleted_is_wanted_absent_until_its_row_is_gone(plane: ControlPlane) -> None:
    made(plane)
    plane.services.vms.delete("default", "train")
    assert plane.services.vms.get("default", "train").wanted == "absent"
    plane.engine.drain()
    assert plane.services.vms.list(None) == ()


@pytest.mark.fault("F36")
def test_a_vm_undefined_from_outside_is_defined_and_started_again(plane: ControlPlane) -> None:
    vm = made(plane)
    undefine(plane.machine(T4_HOST), vm.id)
    codes(plane)
    plane.findings.repair(host=T4_HOST)
    plane.engine.drain()
    assert plane.machine(T4_HOST).domains[vm.id][1]
    assert codes(plane) == []


def test_a_vm_started_from_outside_is_stopped_when_repairs_are_asked_for(plane: ControlPlane) -> None:
    vm = made(plane, start=False)
    start(plane.machine(T4_HOST), vm.id)
    codes(plane)
    plane.findings.repair(host=T4_HOST)
    plane.engine.drain()
    assert not plane.machine(T4_HOST).domains[vm.id][1]
    assert codes(plane) == []


def test_a_vgpu_left_by_a_stopped_vm_is_removed_unasked_and_its_claim_stays(plane: ControlPlane) -> None:
    vm = made(plane)
    machine = plane.machine(T4_HOST)
    mdevs = dict(machine.mdevs)
    plane.services.vms.stop("default", "train")
    plane.engine.drain()
    machine.mdevs.update(mdevs)
    assert codes(plane) == ["vm.device_left"]
    plane.engine.drain()
    assert machine.mdevs == {}
    assert codes(plane) == []
    with plane.store.read() as tx:
        assert tx.claims.find(vm.id) is not None
    assert plane.services.vms.get("default", "train").state == "stopped"


@pytest.mark.fault("F49")
def test_what_a_deleted_vm_left_is_removed_unasked(plane: ControlPlane) -> None:
    vm = made(plane)
    machine = plane.machine(T4_HOST)
    left = dict(machine.mdevs), dict(machine.volumes), dict(machine.seeds)
    plane.services.vms.delete("default", "train")
    plane.engine.drain()
    machine.mdevs.update(left[0])
    machine.volumes.update(left[1])
    machine.seeds.update(left[2])
    found = plane.findings.observe(T4_HOST)
    assert {(one.finding.code, one.finding.whose, one.finding.vm) for one in found} == {
        ("orphan.vgpu", "ours", vm.id),
        ("orphan.volume", "ours", vm.id),
        ("orphan.seed", "ours", vm.id),
    }
    assert len({one.operation for one in plane.findings.list(host=T4_HOST)}) == 1, "one operation for all of it"
    plane.engine.drain()
    assert (machine.mdevs, machine.volumes, machine.seeds) == ({}, {}, {})
    assert codes(plane) == []


@pytest.mark.fault("F49")
def test_a_vgpu_that_a_running_domain_uses_is_left_alone_whoever_made_it(plane: ControlPlane) -> None:
    vm = made(plane)
    machine = plane.machine(T4_HOST)
    mdevs, xml = dict(machine.mdevs), machine.domains[vm.id][0]
    plane.services.vms.delete("default", "train")
    plane.engine.drain()
    machine.mdevs.update(mdevs)
    machine.domains[FOREIGN] = (xml, True)
    found = {one.finding.code: one.finding for one in plane.findings.observe(T4_HOST)}
    assert found["orphan.vgpu"].repair is None
    plane.findings.repair(host=None)
    plane.engine.drain()
    assert machine.mdevs == mdevs


@pytest.mark.fault("F30", "F49")
def test_what_others_made_is_told_and_never_touched(plane: ControlPlane) -> None:
    machine = plane.machine(T4_HOST)
    machine.mdevs[FOREIGN] = (machine.gpus[0].address, "GRID T4-2Q", None)
    found = plane.findings.observe(T4_HOST)
    assert [(one.finding.code, one.finding.whose, one.finding.severity) for one in found] == [
        ("orphan.vgpu", "foreign", "info")
    ]
    assert plane.findings.repair(host=None) == ()
    assert FOREIGN in machine.mdevs


@pytest.mark.fault("F99")
def test_after_an_old_backup_was_restored_the_younger_vm_is_told_and_nothing_of_it_is_removed(
    tmp_path: Path, plane: ControlPlane
) -> None:
    old = tmp_path / "old"
    old.mkdir()
    with plane.store.begin() as tx:
        host = tx.hosts.get(T4_HOST)
        gpus = host.managed_gpus
    vm = made(plane)
    restored = control_plane(old, hosts=plane.hosts)
    with restored.store.begin() as tx:
        tx.hosts.add(replace(host, epoch=host.epoch + 1))
        tx.hosts.set_gpus(T4_HOST, gpus)
    before = plane.machine(T4_HOST).state()
    found = restored.findings.observe(T4_HOST)
    assert {(one.finding.code, one.finding.whose, one.finding.vm) for one in found} == {
        (code, "unknown", vm.id) for code in ("orphan.domain", "orphan.vgpu", "orphan.volume", "orphan.seed")
    }
    assert restored.findings.repair(host=None) == ()
    restored.engine.drain()
    assert plane.machine(T4_HOST).state() == before
    restored.reconciler.close()
    restored.store.close()


def test_a_host_that_does_not_answer_is_told_and_what_was_known_of_it_stays(plane: ControlPlane) -> None:
    vm = made(plane)
    machine = plane.machine(T4_HOST)
    destroy(machine, vm.id)
    assert codes(plane) == ["vm.not_running"]
    machine.answers = False
    assert codes(plane) == ["host.unreachable", "vm.not_running"]
    assert plane.findings.repair(host=None) == (), "nothing is done on a host that is not seen"
    start(machine, vm.id)
    machine.answers = True
    assert codes(plane) == []
    history = plane.findings.list(host=T4_HOST, cleared=True)
    assert [one.finding.code for one in history] == ["host.unreachable", "vm.not_running"]
    assert all(one.cleared_at is not None and one.first_seen <= one.cleared_at for one in history)


@pytest.mark.fault("F23")
def test_another_machine_at_the_address_is_told_and_nothing_on_it_is_compared(plane: ControlPlane) -> None:
    made(plane)
    machine = plane.machine(T4_HOST)
    machine.machine_id = "another"
    machine.domains.clear()
    assert codes(plane) == ["host.quarantined"]


@pytest.mark.fault("F103")
def test_nothing_is_said_of_a_vm_that_an_operation_works_on(plane: ControlPlane) -> None:
    vm = made(plane)
    plane.services.vms.stop("default", "train")
    destroy(plane.machine(T4_HOST), vm.id)
    lose_seed(plane.machine(T4_HOST), vm.id)
    assert codes(plane) == []


def test_a_repair_that_did_not_help_is_not_tried_again_at_once(plane: ControlPlane) -> None:
    made(plane)
    machine = plane.machine(T4_HOST)
    mdevs = dict(machine.mdevs)
    plane.services.vms.stop("default", "train")
    plane.engine.drain()
    machine.mdevs.update(mdevs)
    codes(plane)
    plane.engine.drain()
    machine.mdevs.update(mdevs)
    codes(plane)
    assert plane.engine.waiting == []
    plane.world.clock.sleep(DAY)
    codes(plane)
    assert len(plane.engine.waiting) == 1


def test_a_round_looks_at_all_hosts_and_counts_by_code(plane: ControlPlane) -> None:
    plane.add_host(L40S_HOST)
    for name in (T4_HOST, L40S_HOST):
        plane.machine(name).answers = False
    plane.reconciler.round()
    assert plane.findings.counts() == {"host.unreachable": 2}


def test_findings_of_a_host_that_is_not_there_are_refused(plane: ControlPlane) -> None:
    with pytest.raises(NotFound):
        plane.findings.observe("nowhere")


@pytest.mark.fault("F35")
def test_every_finding_and_every_repair_is_audited(plane: ControlPlane, tmp_path: Path) -> None:
    vm = made(plane)
    destroy(plane.machine(T4_HOST), vm.id)
    codes(plane)
    codes(plane)
    plane.findings.repair(host=None)
    lines = audit(tmp_path)
    assert [line for line in lines if line[0] == "reconcile"] == [
        ("reconcile", "vm.not_running", "VM default/train", "found: shut off"),
        ("reconcile", "vm.not_running", "VM default/train", f"start_vm {plane.engine.waiting[0]}"),
    ]


def audit(state: Path) -> list[tuple[str, str, str, str]]:
    from pysqlite3 import dbapi2 as sqlite3

    with sqlite3.connect(state / "vgpuctl.sqlite") as database:
        return list(database.execute("SELECT actor, action, subject, outcome FROM audit ORDER BY sequence"))


def stuck_create(plane: ControlPlane, error: VgpuctlError) -> str:
    """A create whose host fails with ``error`` from the start of its domain on."""
    gone = []

    def strike(_number: int, moment: str, name: str) -> VgpuctlError | None:
        if (moment, name) == ("before", "StartDomain"):
            gone.append(name)
        return error if gone and moment == "before" else None

    plane.hosts.strike = strike
    operation = plane.services.vms.create(create_vm()).operation
    plane.engine.drain()
    plane.hosts.strike = no_fault
    assert operation is not None
    assert plane.services.operations.get(operation).state == "stuck"
    return operation


def test_an_operation_that_is_stuck_for_another_reason_is_an_operators(plane: ControlPlane) -> None:
    operation = stuck_create(plane, Fatal("vm.start_failed", "QEMU says no"))
    plane.reconciler.observe(T4_HOST)
    plane.engine.drain()
    assert plane.services.operations.get(operation).state == "stuck"
