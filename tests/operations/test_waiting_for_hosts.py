# SPDX-License-Identifier: Apache-2.0
"""What is in mid step when its host goes away waits for it: visibly, bounded, and without holding anybody up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict, Retryable
from orchestrator.core.operation import Operation
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, create_vm, plane_with
from tests.fakes.fake_host import lost_answer, no_fault
from tests.fakes.fake_world import FakeClock

HOST_WAIT_S = 900.0


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST, L40S_HOST) as made:
        yield made


def operation_of(plane: ControlPlane) -> Operation:
    (operation,) = plane.services.operations.list(unfinished=False, limit=1)
    return operation


def begun(plane: ControlPlane, *, away_after: str = "MakeVgpu", moment: str = "after") -> Operation:
    """A create whose host goes away at that effect."""
    machine = plane.machine(T4_HOST)

    def cut(_number: int, when: str, name: str) -> BaseException | None:
        if (when, name) == (moment, away_after):
            machine.answers = False
            return lost_answer(name)
        return None

    plane.hosts.strike = cut
    plane.services.vms.create(create_vm())
    plane.engine.drain()
    plane.hosts.strike = no_fault
    return operation_of(plane)


def due(plane: ControlPlane) -> set[str]:
    with plane.store.read() as tx:
        return {one.operation for one in tx.operations.due()}


def waits(operation: Operation) -> bool:
    return operation.host_wait is not None and operation.host_wait.state == "waiting"


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("effect", ["CreateVolume", "MakeVgpu", "DefineDomain", "StartDomain"])
def test_what_a_reboot_interrupts_waits_and_goes_on_where_it_was(plane: ControlPlane, effect: str, moment: str) -> None:
    operation = begun(plane, away_after=effect, moment=moment)
    assert operation.state == "running"
    assert waits(operation)
    assert due(plane) == set()
    assert any("waits for host t4" in step.message for step in operation.steps)
    plane.look(T4_HOST, after_s=60.0)
    assert waits(operation_of(plane))
    assert operation_of(plane).attempt == operation.attempt, "nobody tries what the looks say is away"

    plane.machine(T4_HOST).answers = True
    plane.look(T4_HOST)
    assert operation_of(plane).state == "done"
    assert operation_of(plane).host_wait is None
    assert plane.services.vms.get("default", "train").state == "running"
    assert len(plane.machine(T4_HOST).mdevs) == 1


@pytest.mark.fault("F20")
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("effect", ["MakeVgpu", "DefineDomain", "StartDomain"])
def test_a_host_that_boots_anew_loses_the_vgpu_and_the_vm_gets_it_again(
    plane: ControlPlane, effect: str, moment: str
) -> None:
    begun(plane, away_after=effect, moment=moment)
    machine = plane.machine(T4_HOST)
    before = set(machine.mdevs)
    machine.mdevs.clear()
    machine.domains = {vm: (xml, False) for vm, (xml, _) in machine.domains.items()}
    machine.answers = True
    plane.look(T4_HOST)
    assert operation_of(plane).state == "done"
    (device,) = plane.services.vms.get("default", "train").devices
    assert set(machine.mdevs) == {device.name}
    assert before <= {device.name}


def test_a_vm_whose_vgpu_somebody_else_has_by_then_is_not_started(plane: ControlPlane) -> None:
    """After its host has booted anew, and with no room left for another."""
    begun(plane, away_after="StartDomain", moment="before")
    machine = plane.machine(T4_HOST)
    machine.mdevs.clear()
    for gpu in machine.gpus:
        machine.mdevs |= {f"{gpu.address}-{number}": (gpu.address, "GRID T4-1Q", None) for number in range(16)}
    taken = dict(machine.mdevs)
    machine.answers = True
    plane.look(T4_HOST)
    assert operation_of(plane).state == "undone"
    assert machine.mdevs == taken
    assert plane.services.vms.list(None) == ()


def test_it_waits_for_a_quarter_of_an_hour_and_then_fails_as_any_other(plane: ControlPlane) -> None:
    first = begun(plane)
    plane.look(T4_HOST)
    plane.look(T4_HOST, after_s=HOST_WAIT_S - 1.0)
    assert waits(operation_of(plane))
    plane.look(T4_HOST, after_s=1.0)
    assert operation_of(plane).state == "stuck"
    assert operation_of(plane).id == first.id
    assert operation_of(plane).host_wait is None

    plane.machine(T4_HOST).answers = True
    plane.look(T4_HOST)
    assert operation_of(plane).state == "undone"
    assert not plane.machine(T4_HOST).mdevs


def test_a_host_that_answers_looks_and_refuses_work_does_not_make_it_wait_for_ever(plane: ControlPlane) -> None:
    plane.hosts.strike = lambda _n, moment, name: (
        Retryable("libvirt.unreachable", "no libvirt") if (moment, name) == ("before", "DefineDomain") else None
    )
    plane.services.vms.create(create_vm())
    plane.engine.drain()
    since = operation_of(plane).host_wait
    assert waits(operation_of(plane))
    plane.look(T4_HOST, after_s=60.0)
    assert operation_of(plane).host_wait == since, "it was tried again and waits as before"
    plane.look(T4_HOST, after_s=HOST_WAIT_S)
    assert operation_of(plane).state == "undone"
    assert not plane.machine(T4_HOST).mdevs


def test_a_clock_that_jumps_does_not_end_the_wait(plane: ControlPlane) -> None:
    begun(plane)
    plane.look(T4_HOST)
    assert isinstance(plane.world.clock, FakeClock)
    plane.world.clock.ahead = 86400.0
    plane.look(T4_HOST, after_s=1.0)
    assert waits(operation_of(plane))


def test_one_that_is_cancelled_is_taken_back_when_its_host_is_back(plane: ControlPlane) -> None:
    operation = begun(plane)
    plane.services.operations.cancel(operation.id)
    plane.engine.drain()
    assert operation_of(plane).state == "undoing"
    assert waits(operation_of(plane))
    plane.machine(T4_HOST).answers = True
    plane.look(T4_HOST)
    assert operation_of(plane).state == "undone"
    assert not plane.machine(T4_HOST).mdevs
    assert plane.services.vms.list(None) == ()


def test_one_that_waits_can_be_abandoned_and_one_that_runs_cannot(plane: ControlPlane) -> None:
    operation = begun(plane)
    assert plane.services.operations.abandon(operation.id).state == "undone"
    assert plane.services.vms.list(None) == ()
    assert due(plane) == set()
    with plane.store.read() as tx:
        (audited,) = tx.audit.newest(limit=1, subject=operation.id)
    assert f"on host {T4_HOST}" in audited.outcome

    plane.machine(T4_HOST).answers = True
    plane.machine(T4_HOST).mdevs.clear()
    plane.services.vms.create(create_vm("other"))
    with pytest.raises(Conflict, match="not stuck"):
        plane.services.operations.abandon(operation_of(plane).id)


def test_what_is_asked_for_on_a_host_that_is_known_to_be_away_waits_without_trying(plane: ControlPlane) -> None:
    plane.services.vms.create(create_vm())
    plane.engine.drain()
    plane.machine(T4_HOST).answers = False
    plane.look(T4_HOST)
    began = plane.world.clock.monotonic()
    plane.services.vms.delete("default", "train")
    plane.engine.drain()
    assert waits(operation_of(plane))
    assert plane.world.clock.monotonic() - began < 0.1, "it has not paused between tries"
    plane.machine(T4_HOST).answers = True
    plane.look(T4_HOST)
    assert operation_of(plane).state == "done"


def test_a_delete_during_a_create_that_waits_comes_after_it_and_leaves_nothing(plane: ControlPlane) -> None:
    begun(plane)
    plane.services.vms.delete("default", "train")
    plane.engine.drain()
    plane.machine(T4_HOST).answers = True
    for _ in range(3):
        plane.look(T4_HOST)
        for one in due(plane):
            plane.engine.submit(one)
        plane.engine.drain()
    assert plane.services.operations.list(unfinished=True, limit=9) == ()
    assert plane.services.vms.list(None) == ()
    assert not plane.machine(T4_HOST).mdevs


def test_a_host_that_is_added_and_does_not_answer_is_said_at_once(plane: ControlPlane) -> None:
    plane.services.hosts.upgrade_agent(T4_HOST)
    plane.machine(T4_HOST).answers = False
    plane.engine.drain()
    assert operation_of(plane).host_wait is None
    assert operation_of(plane).state in {"undone", "stuck"}
