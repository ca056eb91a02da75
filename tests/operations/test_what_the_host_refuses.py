# SPDX-License-Identifier: Apache-2.0
"""What a host may refuse in the middle of a create, or take away before a start, and requests that meet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import Fatal, NoCapacity, NotFound, Retryable
from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.core.operation import Operation
from orchestrator.core.vms.claim import Claim
from orchestrator.services.vms.capacity import Question
from tests.fakes.control_plane import T4_HOST, ControlPlane, create_vm, plane_with
from tests.fakes.fake_host import no_fault

T4_PROFILE, WHOLE_T4 = "GRID T4-2Q", "GRID T4-16Q"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST) as made:
        yield made


def made(plane: ControlPlane, name: str = "train", profile: str = T4_PROFILE) -> Operation:
    begun = plane.services.vms.create(create_vm(name, profile=profile)).operation
    return finished(plane, begun)


def finished(plane: ControlPlane, operation: str | None) -> Operation:
    plane.engine.drain()
    assert operation is not None
    return plane.services.operations.get(operation)


@pytest.mark.fault("F27", "F32")
@pytest.mark.parametrize(
    ("effect", "error", "never_reached"),
    [
        (
            "CreateVolume",
            Fatal("host.disk_full", "the host's disk is full"),
            {"MakeVgpu", "DefineDomain", "StartDomain"},
        ),
        (
            "StartDomain",
            Fatal("vm.start_failed", "QEMU did not start", details="unable to map backing store for guest RAM"),
            set(),
        ),
    ],
)
def test_without_disk_or_memory_the_create_is_taken_back_and_says_why(
    plane: ControlPlane, effect: str, error: Fatal, never_reached: set[str]
) -> None:
    before = plane.machine(T4_HOST).state()
    plane.hosts.effects.clear()
    plane.hosts.strike = lambda _, moment, name: error if (moment, name) == ("before", effect) else None
    operation = made(plane)
    assert (operation.state, (operation.error or {})["code"]) == ("undone", error.code)
    assert never_reached.isdisjoint(plane.hosts.effects)
    assert plane.machine(T4_HOST).state() == before
    plane.hosts.strike = no_fault
    assert made(plane).state == "done"


@pytest.mark.fault("F28")
@pytest.mark.parametrize("effect", ["CreateVolume", "WriteSeed", "MakeVgpu", "DefineDomain"])
def test_on_a_host_that_may_only_be_read_nothing_new_is_made_and_what_runs_is_left_alone(
    plane: ControlPlane, effect: str
) -> None:
    """What the agent answers when it cannot write down what it is about to do."""
    assert made(plane, "runs").state == "done"
    before = plane.machine(T4_HOST).state()
    error = Fatal("agent.ledger_unusable", "the agent cannot write down what it is about to do")
    plane.hosts.strike = lambda _, moment, name: error if (moment, name) == ("before", effect) else None
    operation = made(plane, "new")
    assert (operation.error or {})["code"] == error.code
    assert plane.services.vms.get("default", "runs").state == "running"
    plane.hosts.strike = no_fault
    if operation.state == "stuck":
        plane.services.operations.retry(operation.id)
        assert finished(plane, operation.id).state == "undone"
    assert plane.machine(T4_HOST).state() == before


@pytest.mark.parametrize("code", ["store.unavailable", "store.damaged", "store.connection_lost", "store.busy"])
def test_while_the_database_is_away_a_step_is_neither_undone_nor_stuck_and_goes_on_when_it_is_back(
    plane: ControlPlane, code: str
) -> None:
    away = Retryable(code, "the database cannot be used")
    plane.hosts.strike = lambda _, moment, name: away if (moment, name) == ("after", "MakeVgpu") else None
    begun = plane.services.vms.create(create_vm("train", profile=T4_PROFILE)).operation
    assert begun is not None
    with pytest.raises(Retryable):
        plane.engine.drain()
    assert plane.services.operations.get(begun).state == "running"
    plane.hosts.strike = no_fault
    plane.engine.submit(begun)
    assert finished(plane, begun).state == "done"
    assert len(plane.machine(T4_HOST).mdevs) == 1


@pytest.mark.fault("F39")
def test_an_mdev_that_is_not_there_at_start_is_made_again_with_its_uuid(plane: ControlPlane) -> None:
    made(plane)
    vm, machine = plane.services.vms.get("default", "train"), plane.machine(T4_HOST)
    (uuid,) = machine.mdevs
    machine.domains[vm.id] = (machine.domains[vm.id][0], False)
    machine.mdevs.clear()
    plane.observer.observe(T4_HOST)
    assert finished(plane, plane.services.vms.start("default", "train").operation).state == "done"
    assert list(machine.mdevs) == [uuid]


@pytest.mark.fault("F54")
def test_room_that_others_take_between_plan_and_act_is_never_promised_twice(plane: ControlPlane) -> None:
    machine = plane.machine(T4_HOST)
    begun = plane.services.vms.create(create_vm("late", profile=T4_PROFILE)).operation
    for gpu in machine.gpus:
        for number in range(8):
            machine.mdevs[f"{gpu.address}-{number}"] = (gpu.address, T4_PROFILE, None)
    foreign = dict(machine.mdevs)
    operation = finished(plane, begun)
    assert (operation.state, (operation.error or {})["code"]) == ("undone", "vgpu.no_room")
    assert machine.mdevs == foreign
    plane.observer.observe(T4_HOST)
    with pytest.raises(NoCapacity):
        plane.services.vms.create(create_vm("later", profile=T4_PROFILE))


@pytest.mark.fault("F09")
def test_what_could_not_be_taken_back_is_given_to_nobody_until_it_was(plane: ControlPlane) -> None:
    def refused(_number: int, moment: str, name: str) -> Fatal | None:
        kept = name == "RemoveMdev" or (name == "StartDomain" and not plane.machine(T4_HOST).domains[stuck.id][1])
        return Fatal("test.refused", name) if moment == "before" and kept else None

    begun = plane.services.vms.create(create_vm("stuck", profile=WHOLE_T4))
    stuck = plane.services.vms.get("default", "stuck")
    plane.hosts.strike = refused
    operation = finished(plane, begun.operation)
    assert operation.state == "stuck"
    assert any("vGPU" in text for text in operation.remainder)
    (left,) = plane.machine(T4_HOST).mdevs

    plane.hosts.strike = lambda _, moment, name: (
        Fatal("test.refused", name) if (moment, name) == ("before", "RemoveMdev") else None
    )
    assert made(plane, "other", WHOLE_T4).state == "done"
    for _ in range(3):  # looks, and an operator who tries too early
        plane.look(T4_HOST, after_s=900.0)
        with pytest.raises(NoCapacity):
            plane.services.vms.create(create_vm("late", profile=WHOLE_T4))
        plane.services.operations.retry(operation.id)
        assert finished(plane, operation.id).state == "stuck"
    assert left in plane.machine(T4_HOST).mdevs

    plane.hosts.strike = no_fault
    plane.services.operations.retry(operation.id)
    assert finished(plane, operation.id).state == "undone"
    assert left not in plane.machine(T4_HOST).mdevs
    plane.look(T4_HOST)
    assert made(plane, "late", WHOLE_T4).state == "done"


@pytest.mark.fault("F87")
def test_gpus_that_the_driver_cannot_read_take_nothing_new_lose_nothing_and_are_never_more_than_before(
    plane: ControlPlane,
) -> None:
    """As an agent tells it whose driver hangs, loses a GPU or answers rubbish: the bus lists them, NVML does not."""
    assert made(plane).state == "done"
    vm, claims = plane.services.vms.get("default", "train"), _claims(plane)
    before = _how_many(plane)
    with plane.store.read() as tx:
        well = tx.hosts.snapshot(T4_HOST)
    assert well is not None
    unread = tuple(
        replace(gpu, uuid="", model="NVIDIA 10de:1eb8", memory_mib=None, types=(), problems=("NVML does not answer",))
        for gpu in well.gpus
    )
    for gpus in (unread[:1] + well.gpus[1:], unread):
        _seen(plane, replace(well, gpus=gpus, driver_version=None))
        assert _how_many(plane) < before
        assert _claims(plane) == claims
        assert plane.services.vms.get("default", "train") == vm
    with pytest.raises(NoCapacity) as caught:
        plane.services.vms.create(create_vm("late", profile=T4_PROFILE))
    assert "NVML does not answer" in str([(reason.message, reason.subjects) for reason in caught.value.reasons])
    listed = plane.services.gpus.list(T4_HOST)
    assert {(one.gpu.model, one.gpu.memory_mib) for one in listed} == {("Tesla T4", None)}  # its PCI ids' model
    _seen(plane, well)
    assert _how_many(plane) == before
    assert made(plane, "late").state == "done"


def _seen(plane: ControlPlane, snapshot: HostSnapshot) -> None:
    with plane.store.begin() as tx:
        tx.hosts.put_snapshot(T4_HOST, snapshot, tx.operations.turn())


def _claims(plane: ControlPlane) -> tuple[Claim, ...]:
    with plane.store.read() as tx:
        return tx.claims.of_host(T4_HOST)


def _how_many(plane: ControlPlane) -> int:
    """VMs that still fit."""
    return sum(one.fits_now for one in plane.services.capacity.capacity(Question(each=True)))


@pytest.mark.fault("F16")
def test_of_two_deletes_one_acts_and_both_are_answered(plane: ControlPlane) -> None:
    before = plane.machine(T4_HOST).state()
    made(plane)
    first, second = (plane.services.vms.delete("default", "train") for _ in range(2))
    assert first.operation == second.operation
    assert finished(plane, first.operation).state == "done"
    assert plane.machine(T4_HOST).state() == before
    with pytest.raises(NotFound):
        plane.services.vms.delete("default", "train")
