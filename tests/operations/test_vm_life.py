# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import update

from orchestrator.core.errors import Conflict, Fatal, NoCapacity, NotFound, Retryable
from orchestrator.core.operation import Operation
from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.operations.runner import Runner
from orchestrator.store.tables import steps
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, create_vm, plane_with
from tests.fakes.fake_host import lost_answer, no_fault

L40S = "NVIDIA L40S-12Q"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST, L40S_HOST) as made:
        yield made


def finished(plane: ControlPlane, operation_id: str | None) -> Operation:
    plane.engine.drain()
    assert operation_id is not None
    return plane.services.operations.get(operation_id)


def make(plane: ControlPlane, name: str = "train", profile: str = "GRID T4-2Q", *, start: bool = True) -> Operation:
    return finished(plane, plane.services.vms.create(create_vm(name, profile=profile, start=start)).operation)


def test_steps_say_what_they_did_without_names_of_files(plane: ControlPlane) -> None:
    made = make(plane)
    vm = plane.services.vms.get("default", "train")
    said = {step.title: step.message for step in made.steps}
    assert [message for message in said.values() if vm.id in str(message)] == []
    assert (said["disk"], said["seed"]) == ("1GiB", "")


@pytest.mark.parametrize("profile,host", [("GRID T4-2Q", T4_HOST), (L40S, L40S_HOST)])
def test_a_vm_runs_stops_keeping_its_claim_and_leaves_nothing_when_deleted(
    plane: ControlPlane, profile: str, host: str
) -> None:
    vms, machine = plane.services.vms, plane.machine(host)
    before = machine.state()
    assert make(plane, profile=profile).state == "done"
    vm = vms.get("default", "train")
    assert (vm.state, vm.host, vm.addresses) == ("running", host, ("192.168.122.10",))
    assert len(machine.mdevs) + len(machine.vf_types) == 1

    assert finished(plane, vms.stop("default", "train").operation).state == "done"
    assert vms.get("default", "train").state == "stopped"
    assert len(machine.mdevs) + len(machine.vf_types) == 0
    used = [use.used for info in plane.services.gpus.list(host) for use in info.types if use.name == profile]
    assert sum(used) == 1

    assert finished(plane, vms.start("default", "train").operation).state == "done"
    assert len(machine.mdevs) + len(machine.vf_types) == 1
    assert finished(plane, vms.delete("default", "train").operation).state == "done"
    assert machine.state() == before
    assert vms.list(None) == ()


@pytest.mark.fault("F11")
def test_the_same_request_again_is_the_same_vm_and_another_is_a_conflict(plane: ControlPlane) -> None:
    vms = plane.services.vms
    first = vms.create(create_vm())
    again = vms.create(create_vm())
    assert (again.operation, again.existing) == (first.operation, True)
    plane.engine.drain()
    after = vms.create(create_vm())
    assert (after.operation, after.existing) == (None, True)
    for other, told in (
        ({"vcpus": 2}, "number of vCPUs"), ({"memory_mib": 512, "disk_bytes": 2**32}, "memory, disk"),
        ({"priority": "low"}, "priority"), ({"host": T4_HOST}, "host (left out then)"),
        ({"user_data": None}, "user data"), ({"user_data": "#!/bin/sh\n"}, "user data"),
    ):  # fmt: skip
        changed = replace(create_vm(), **other)
        with pytest.raises(Conflict) as caught:
            vms.create(changed)
        assert caught.value.code == "vm.exists"
        assert caught.value.message == f"there is already a VM {changed.name}, asked for otherwise: {told}"
        with pytest.raises(Conflict, match=r"there is already a VM [a-z]+$"):
            vms.plan(changed)


def test_a_gpu_takes_what_its_driver_says_and_the_next_vm_is_told_why_not(plane: ControlPlane) -> None:
    vms = plane.services.vms
    for number in range(16):
        vms.create(create_vm(f"vm-{number}", start=False))
    with pytest.raises(NoCapacity) as caught:
        vms.create(create_vm("one-more"))
    assert caught.value.code == "gpu.no_capacity"
    assert {subject for reason in caught.value.reasons for subject in reason.subjects} >= {
        "t4/0000:41:00.0",
        "t4/0000:42:00.0",
    }
    plane.engine.drain()
    assert not plane.machine(T4_HOST).mdevs
    assert len(plane.machine(T4_HOST).domains) == 16


@pytest.mark.fault("F55")
def test_another_size_on_a_gpu_in_use_is_refused_and_explained(plane: ControlPlane) -> None:
    for gpu in ("a", "b"):
        make(plane, gpu, L40S, start=False)
    machine = plane.machine(L40S_HOST)
    machine.gpus = machine.gpus[:1]
    plane.observer.observe(L40S_HOST)
    with pytest.raises(NoCapacity) as caught:
        plane.services.vms.create(create_vm("other", profile="NVIDIA L40S-24Q"))
    assert "gpu.other_size_in_use" in {reason.code for reason in caught.value.reasons}


@pytest.mark.fault("F14")
def test_deleting_while_it_is_created_wins_and_leaves_nothing(plane: ControlPlane) -> None:
    vms, machine = plane.services.vms, plane.machine(T4_HOST)
    before = machine.state()
    created = vms.create(create_vm())
    deleted = None

    def delete_meanwhile(_number: int, moment: str, name: str) -> None:
        nonlocal deleted
        if (moment, name) == ("after", "CreateVolume"):
            deleted = vms.delete("default", "train")
            assert vms.delete("default", "train").operation == deleted.operation

    plane.hosts.strike = delete_meanwhile
    assert finished(plane, created.operation).state == "undone"
    assert deleted is not None
    assert finished(plane, deleted.operation).state == "done"
    assert machine.state() == before
    with pytest.raises(NotFound):
        vms.get("default", "train")


def test_deleting_while_the_guest_boots_waits_for_no_address(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    vms, machine, clock = plane.services.vms, plane.machine(T4_HOST), plane.world.clock
    before = machine.state()
    machine.gives_addresses = False
    created = vms.create(create_vm())
    deleted: list[float] = []
    sleep = clock.sleep

    def delete_meanwhile(seconds: float) -> None:
        sleep(seconds)
        if not deleted:
            vms.delete("default", "train")
            deleted.append(clock.now())

    monkeypatch.setattr(clock, "sleep", delete_meanwhile)
    assert finished(plane, created.operation).state == "undone"
    assert clock.now() - deleted[0] < 5
    machine.gives_addresses = True
    assert machine.state() == before


@pytest.mark.fault("F17")
def test_a_server_that_stops_leaves_a_guest_that_boots_to_the_next_one(plane: ControlPlane) -> None:
    machine, clock = plane.machine(T4_HOST), plane.world.clock
    machine.gives_addresses = False
    created = plane.services.vms.create(create_vm())
    assert created.operation is not None
    began = clock.now()
    Runner(plane.world, plane.journal, DEFINITIONS).run(created.operation)
    assert clock.now() - began < 5
    assert plane.services.operations.get(created.operation).state == "running"
    machine.gives_addresses = True
    assert finished(plane, created.operation).state == "done"


def test_a_cancelled_create_is_taken_back(plane: ControlPlane) -> None:
    before = plane.machine(T4_HOST).state()
    created = plane.services.vms.create(create_vm())
    assert created.operation is not None
    plane.services.operations.cancel(created.operation)
    operation = finished(plane, created.operation)
    assert operation.state == "undone"
    assert operation.error is not None
    assert operation.error["code"] == "operation.cancelled"
    assert plane.machine(T4_HOST).state() == before
    assert list(plane.services.vms.list(tenants=None)) == []
    assert make(plane).state == "done"


def test_the_error_names_the_step_and_the_cause(plane: ControlPlane) -> None:
    plane.hosts.strike = lambda _n, moment, name: (
        Fatal("vgpu.driver_refused", "the driver refused") if (moment, name) == ("before", "MakeVgpu") else None
    )
    error = make(plane).error
    assert error is not None
    assert (error["step"], error["code"], error["message"]) == ("vGPU", "vgpu.driver_refused", "the driver refused")


def test_a_guest_without_an_address_is_done_with_a_warning(plane: ControlPlane) -> None:
    plane.machine(T4_HOST).gives_addresses = False
    operation = make(plane)
    assert operation.state == "done"
    assert "no address" in operation.warnings[0]
    assert plane.services.vms.get("default", "train").state == "running"


@pytest.mark.fault("F38")
def test_a_guest_that_dies_at_once_is_taken_back(plane: ControlPlane) -> None:
    before = plane.machine(T4_HOST).state()
    plane.machine(T4_HOST).guests_die = True
    operation = make(plane)
    assert operation.state == "undone"
    assert operation.error is not None
    assert operation.error["code"] == "vm.guest_died"
    plane.machine(T4_HOST).guests_die = False
    assert plane.machine(T4_HOST).state() == before


@pytest.mark.fault("F64")
def test_after_a_reboot_a_start_enables_the_functions_again(plane: ControlPlane) -> None:
    make(plane, profile=L40S, start=False)
    plane.machine(L40S_HOST).gpus[0].enabled = False
    assert finished(plane, plane.services.vms.start("default", "train").operation).state == "done"
    assert plane.machine(L40S_HOST).gpus[0].enabled


def test_a_function_taken_by_others_is_replaced_at_start_and_the_definition_follows(plane: ControlPlane) -> None:
    make(plane, profile=L40S, start=False)
    drawn = plane.services.vms.get("default", "train").devices[0]
    plane.machine(L40S_HOST).vf_types[drawn.parent] = (L40S, None)
    assert finished(plane, plane.services.vms.start("default", "train").operation).state == "done"
    device = plane.services.vms.get("default", "train").devices[0]
    assert device.parent != drawn.parent
    assert plane.machine(L40S_HOST).vf_types[drawn.parent] == (L40S, None)
    slot = int(device.parent[8:10], 16)
    assert f'slot="0x{slot:02x}"' in plane.machine(L40S_HOST).domains[plane.services.vms.get("default", "train").id][0]


@pytest.mark.fault("F30")
def test_vgpus_of_others_take_room_and_are_never_touched(plane: ControlPlane) -> None:
    machine = plane.machine(T4_HOST)
    for gpu in machine.gpus:
        for number in range(7):
            machine.mdevs[f"{gpu.address}-{number}"] = (gpu.address, "GRID T4-2Q", None)
    foreign = dict(machine.mdevs)
    plane.observer.observe(T4_HOST)
    assert make(plane, "one").state == make(plane, "two").state == "done"
    with pytest.raises(NoCapacity):
        plane.services.vms.create(create_vm("three"))
    for name in ("one", "two"):
        finished(plane, plane.services.vms.delete("default", name).operation)
    assert machine.mdevs == foreign


@pytest.mark.fault("F09", "F21")
def test_a_host_that_does_not_answer_for_good_keeps_the_claim_until_it_was_read(plane: ControlPlane) -> None:
    machine = plane.machine(T4_HOST)

    def cut(_number: int, moment: str, name: str) -> BaseException | None:
        if (moment, name) == ("after", "MakeVgpu"):
            machine.answers = False
            return lost_answer(name)
        return None

    plane.hosts.strike = cut
    make(plane)
    plane.wait_out(T4_HOST)
    (operation,) = plane.services.operations.list(unfinished=False, limit=1)
    assert operation.state == "stuck"
    assert any("vGPU" in text for text in operation.remainder)
    assert any("claim" in text for text in operation.remainder)
    assert plane.services.vms.get("default", "train").state == "stuck"
    assert plane.services.gpus.get(T4_HOST, "0000:41:00.0").cut is not None

    machine.answers, plane.hosts.strike = True, no_fault
    plane.look(T4_HOST)
    assert plane.services.operations.get(operation.id).state == "undone"
    assert not machine.mdevs
    assert plane.services.vms.list(None) == ()


def test_an_abandoned_operation_releases_what_it_held(plane: ControlPlane) -> None:
    plane.hosts.strike = lambda _n, moment, name: (
        Fatal("test.refused", name) if moment == "before" and name in {"MakeVgpu", "RemoveMdev"} else None
    )
    operation = make(plane)
    assert operation.state == "stuck"
    assert plane.services.operations.abandon(operation.id).state == "undone"
    assert plane.services.vms.list(None) == ()
    assert plane.services.gpus.get(T4_HOST, "0000:41:00.0").cut is None


def test_a_stuck_vm_can_be_deleted_which_settles_the_stuck_operation(plane: ControlPlane) -> None:
    plane.hosts.strike = lambda _n, moment, name: (
        Fatal("test.refused", name) if moment == "before" and name in {"DefineDomain", "RemoveMdev"} else None
    )
    operation = make(plane)
    assert operation.state == "stuck"
    plane.hosts.strike = no_fault
    assert finished(plane, plane.services.vms.delete("default", "train").operation).state == "done"
    settled = plane.services.operations.get(operation.id)
    assert (settled.state, settled.remainder) == ("undone", ())
    assert not plane.machine(T4_HOST).mdevs


def test_stop_on_a_host_that_is_away_changes_nothing(plane: ControlPlane) -> None:
    make(plane)
    plane.machine(T4_HOST).answers = False
    operation = finished(plane, plane.services.vms.stop("default", "train").operation)
    assert operation.state == "running"
    plane.wait_out(T4_HOST)
    assert plane.services.operations.get(operation.id).state == "undone"
    assert plane.services.vms.get("default", "train").state == "running"


def test_a_step_that_this_version_does_not_know_makes_it_stuck(plane: ControlPlane) -> None:
    created = plane.services.vms.create(create_vm())
    assert created.operation is not None
    with plane.store.begin() as tx:
        its = (steps.c.operation == created.operation, steps.c.position == 3)
        tx.connection.execute(update(steps).where(*its).values(name="volume.99"))
    operation = finished(plane, created.operation)
    assert operation.state == "stuck"
    assert operation.error is not None
    assert operation.error["code"] == "operation.unknown_step"


def test_secrets_are_in_no_row_of_the_database(plane: ControlPlane, tmp_path: Path) -> None:
    make(plane)
    plane.services.vms.plan(create_vm("dry"))
    plane.store.close()
    files = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"planted-secret" not in files


def test_a_dry_run_says_everything_and_stores_nothing(plane: ControlPlane) -> None:
    dry = plane.services.vms.plan(create_vm(profile=L40S))
    assert [type(action).__name__ for action in dry.actions] == [
        "EnsureNetwork",
        "CreateVolume",
        "WriteSeed",
        "MakeVgpu",
        "DefineDomain",
        "StartDomain",
    ]
    assert "<hostdev" in dry.domain_xml
    assert plane.services.vms.list(None) == ()
    assert plane.engine.waiting == []


@pytest.mark.fault("F45")
def test_what_the_guest_did_itself_is_seen(plane: ControlPlane) -> None:
    make(plane)
    vm = plane.services.vms.get("default", "train")
    machine = plane.machine(T4_HOST)
    machine.domains[vm.id] = (machine.domains[vm.id][0], False)
    plane.observer.observe(T4_HOST)
    assert plane.services.vms.get("default", "train").state == "stopped"


def test_a_host_is_unreachable_while_it_does_not_answer_and_ready_again_after(plane: ControlPlane) -> None:
    plane.machine(T4_HOST).answers = False
    plane.reconciler.round()
    assert plane.services.hosts.get(T4_HOST).host.state == "unreachable"
    with pytest.raises(NoCapacity):
        plane.services.vms.create(create_vm())
    plane.machine(T4_HOST).answers = True
    plane.reconciler.round()
    assert plane.services.hosts.get(T4_HOST).host.state == "ready"


def test_console_and_ports_need_a_running_vm(plane: ControlPlane) -> None:
    make(plane, start=False)
    with pytest.raises(Conflict) as caught:
        plane.services.guest_access.open_console("default", "train")
    assert caught.value.code == "vm.not_running"
    finished(plane, plane.services.vms.start("default", "train").operation)
    assert plane.services.guest_access.open_tcp("default", "train", 22).receive(100).endswith(b":22\n")


def test_a_vm_from_before_screens_says_how_it_gets_one(plane: ControlPlane) -> None:
    make(plane)
    plane.hosts.without_screen.add(plane.services.vms.get("default", "train").id)
    with pytest.raises(Conflict) as caught:
        plane.services.guest_access.open_display("default", "train")
    assert caught.value.code == "vm.no_display"
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("'vgpuctl restart-vm train'")


def test_a_busy_driver_is_given_time(plane: ControlPlane) -> None:
    strikes = iter([Retryable("vgpu.busy", "busy")] * 3)
    plane.hosts.strike = lambda _n, moment, name: (
        next(strikes, None) if (moment, name) == ("before", "MakeVgpu") else None
    )
    assert make(plane).state == "done"
