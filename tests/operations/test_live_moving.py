# SPDX-License-Identifier: Apache-2.0
"""A running VM that goes to another host: it runs on one of them at every moment, and what it has goes along."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.actions.live_move import MovedVm, MoveLoad
from orchestrator.core.errors import Conflict, Fatal, Retryable, VgpuctlError
from orchestrator.core.operation import Operation
from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.operations.runner import Runner
from orchestrator.operations.stuck import ways_out
from orchestrator.services.messages import MoveVm
from tests.fakes.control_plane import L40S_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.fake_data_volumes import memory_of, waits
from tests.fakes.fake_host import Crash, lost_answer
from tests.fakes.recount import miscounted
from tests.operations.moves import MIGRATABLE, OTHER, move, with_running_vm

Fault = Callable[[str], BaseException]


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    made = control_plane(tmp_path)
    with_running_vm(made)
    yield made
    made.store.close()


def run(plane: ControlPlane, operation: str | None) -> Operation:
    """Until its controllers live, and it has ended or waits."""
    assert operation is not None
    for _ in range(5):
        try:
            Runner(plane.world, plane.journal, DEFINITIONS).run(operation)
        except Crash:
            continue
        break
    return plane.services.operations.get(operation)


def runs_on(plane: ControlPlane) -> list[str]:
    """Hosts that its domain runs on; its memory was booted once."""
    vm = plane.services.vms.get("default", "train").id
    hosts = {name: plane.machine(name) for name in (L40S_HOST, OTHER)}
    return [name for name, machine in hosts.items() if machine.domains.get(vm, ("", False))[1]]


def strike_at(plane: ControlPlane, name: str, moment: str, fault: Fault) -> None:
    """Once. It never runs on two hosts."""
    left = [fault]

    def strike(_number: int, at: str, effect: str) -> BaseException | None:
        assert len(runs_on(plane)) <= 1, effect
        return left.pop()(effect) if (at, effect) == (moment, name) and left else None

    plane.hosts.strike = strike


def whole(plane: ControlPlane, host: str, booted_on: str = L40S_HOST) -> None:
    """It runs there alone, with the memory and the disk that it had, and the other host has nothing of it."""
    vm = plane.services.vms.get("default", "train")
    assert (vm.host, vm.state, vm.wanted) == (host, "running", "running")
    assert runs_on(plane) == [host]
    here, other = plane.machine(host), plane.machine(OTHER if host == L40S_HOST else L40S_HOST)
    booted = plane.machine(booted_on).machine_id
    assert {here.written[vm.volume], here.written[memory_of(vm.id)]} == {plane.machine(L40S_HOST).machine_id, booted}
    assert [other.volumes, other.seeds, other.domains, other.written, other.vf_types] == [{}, {}, {}, {}, {}]
    assert len(here.vf_types) == 1
    with plane.store.read() as tx:
        assert list(miscounted(tx)) == []
        assert [claim.host for claim in tx.claims.list()] == [host]


def test_its_guest_goes_on_on_the_other_host(plane: ControlPlane) -> None:
    operation = move(plane)
    assert plane.services.vms.get("default", "train").state == "moving"
    moved = run(plane, operation)
    assert moved.state == "done"
    assert f" of {OTHER}: " in moved.steps[0].message
    whole(plane, OTHER)
    assert run(plane, move(plane)).state == "done"
    whole(plane, L40S_HOST)


@pytest.mark.fault("F13")
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(
    "effect", ["DefineDomain", "move_vm", "StartDomain", "StopDomain", "UndefineDomain", "DeleteVolume"]
)
@pytest.mark.parametrize(
    "fault",
    [partial(Fatal, "test.refused"), partial(Retryable, "test.busy"), lost_answer, lambda _: Crash()],
    ids=["refused", "busy", "lost", "killed"],
)  # fmt: skip
def test_whatever_fails_it_runs_on_one_host_and_is_whole_there(
    plane: ControlPlane, effect: str, moment: str, fault: Fault
) -> None:
    operation = move(plane)
    strike_at(plane, effect, moment, fault)
    ended = run(plane, operation)
    if ended.state == "stuck":
        plane.services.operations.retry(ended.id)
        ended = run(plane, operation)
    assert ended.state in {"done", "undone"}
    whole(plane, OTHER if ended.state == "done" else L40S_HOST)


def test_its_host_is_away_when_it_has_left_and_nobody_guesses(plane: ControlPlane) -> None:
    operation = move(plane)

    def cut(effect: str) -> BaseException:
        plane.machine(L40S_HOST).answers = False
        return lost_answer(effect)

    strike_at(plane, "move_vm", "after", cut)
    assert run(plane, operation).host_wait is not None
    assert runs_on(plane) == []
    assert plane.services.vms.get("default", "train").host == L40S_HOST
    plane.machine(L40S_HOST).answers = True
    plane.look(L40S_HOST)
    plane.engine.drain()
    whole(plane, OTHER)


def test_its_host_stays_away_for_longer_than_anybody_waits_and_it_goes_on_when_it_is_back(plane: ControlPlane) -> None:
    operation, source = str(move(plane)), plane.machine(L40S_HOST)

    def cut(effect: str) -> BaseException:
        source.answers = False
        return lost_answer(effect)

    strike_at(plane, "move_vm", "after", cut)
    run(plane, operation)
    with plane.store.begin() as tx:
        tx.operations.end_wait(operation, "over")
    assert run(plane, operation).state == "stuck"
    source.answers = True
    plane.services.operations.retry(operation)
    stuck = run(plane, operation)
    assert (stuck.state, (stuck.error or {})["stuck_by"], ways_out(stuck)) == ("stuck", "vm.moved", ("retry",))
    with pytest.raises(Conflict) as refused:
        plane.services.operations.abandon(operation)
    assert refused.value.code == "operation.vm_moved"
    plane.services.operations.retry(operation)
    assert run(plane, operation).state == "done"
    whole(plane, OTHER)


@pytest.mark.fault("F13")
@pytest.mark.parametrize("fault", [lambda _: Crash(), lost_answer], ids=["killed", "lost"])
def test_it_left_and_its_definition_stayed_where_it_was_and_what_came_goes_on(
    plane: ControlPlane, fault: Fault
) -> None:
    """libvirt was killed there while it cleaned up, and its controller did not hear that it has left."""
    operation, source, target = move(plane), plane.machine(L40S_HOST), plane.machine(OTHER)
    vm = plane.services.vms.get("default", "train").id
    definition = source.domains[vm][0]
    source.written[memory_of(vm)] = "what no boot brings"

    def killed(effect: str) -> BaseException:
        source.domains[vm] = (definition, False)
        return fault(effect)

    strike_at(plane, "move_vm", "after", killed)
    assert run(plane, operation).state == "done"
    assert (runs_on(plane), target.written[memory_of(vm)]) == ([OTHER], "what no boot brings")
    assert source.domains == {}
    plane.hosts.strike = lambda *_: None
    assert run(plane, move(plane)).state == "done"
    assert (runs_on(plane), source.written[memory_of(vm)]) == ([L40S_HOST], "what no boot brings"), "it may come back"


def test_its_host_loses_power_in_the_middle_and_it_is_booted_there_and_goes(plane: ControlPlane) -> None:
    operation, source = move(plane), plane.machine(L40S_HOST)
    vm = plane.services.vms.get("default", "train").id

    def power_cut(effect: str) -> BaseException:
        source.domains[vm] = (source.domains[vm][0], False)
        return lost_answer(effect)

    strike_at(plane, "move_vm", "before", power_cut)
    assert run(plane, operation).state == "done"
    assert plane.hosts.effects.count("move_vm") == 2
    whole(plane, OTHER)


@pytest.mark.parametrize("moment,host", [("before", L40S_HOST), ("after", OTHER)])
def test_cancelled_on_its_way_it_stays_and_cancelled_when_it_has_left_it_goes_on(
    plane: ControlPlane, moment: str, host: str
) -> None:
    operation = str(move(plane))

    def cancel(_effect: str) -> BaseException:
        plane.services.operations.cancel(operation)
        return Conflict("operation.cancelled", "it was cancelled")

    strike_at(plane, "move_vm", moment, cancel)
    assert run(plane, operation).state == ("undone" if moment == "before" else "done")
    whole(plane, host)


def test_an_empty_disk_is_not_taken_for_a_vm_that_has_come(plane: ControlPlane) -> None:
    """Somebody has removed its definition by hand."""
    operation, vm = move(plane), plane.services.vms.get("default", "train")

    def removed(effect: str) -> BaseException:
        del plane.machine(L40S_HOST).domains[vm.id]
        return lost_answer(effect)

    strike_at(plane, "move_vm", "before", removed)
    ended = run(plane, operation)
    assert (ended.state, (ended.error or {})["code"]) == ("stuck", "vm.not_seen")
    assert vm.volume in plane.machine(L40S_HOST).volumes
    assert runs_on(plane) == []


def test_a_start_that_fails_where_it_is_just_going_does_not_make_it_stay(plane: ControlPlane) -> None:
    """libvirt removes the definition a moment after the domain ended: what came is all there is of it."""
    operation = move(plane)

    def strike(_number: int, at: str, effect: str) -> BaseException | None:
        if (at, effect) == ("after", "move_vm"):
            return Fatal("move.failed", "the answer at the end was lost")
        if (at, effect) == ("before", "StartDomain") and plane.services.vms.get("default", "train").host == L40S_HOST:
            return Fatal("vm.start_failed", "the VM did not start")
        return None

    plane.hosts.strike = strike
    assert run(plane, operation).state == "done"
    whole(plane, OTHER)


def test_what_an_attempt_left_that_nobody_saw_end_is_in_no_ones_way(plane: ControlPlane) -> None:
    """It waits there paused, and the VM has gone on where it was."""
    operation, vm = move(plane), plane.services.vms.get("default", "train").id

    def left(_effect: str) -> BaseException:
        plane.machine(OTHER).written[waits(vm)] = "an earlier attempt"
        return Crash()

    strike_at(plane, "move_vm", "before", left)
    assert run(plane, operation).state == "done"
    whole(plane, OTHER)


@pytest.mark.fault("F15")
def test_nothing_else_is_done_to_it_meanwhile(plane: ControlPlane) -> None:
    move(plane)
    vms = plane.services.vms
    for act in (vms.stop, vms.restart, vms.delete):
        with pytest.raises(Conflict) as refused:
            act("default", "train")
        assert refused.value.code == "vm.busy"


def test_what_it_has_where_it_goes_is_counted_once(plane: ControlPlane) -> None:
    """Made there it belongs to the VM, whose place is held under another id: it is nobody else's vGPU."""
    operation, free = move(plane), list[int | None]()

    def observe(_number: int, moment: str, effect: str) -> None:
        if (moment, effect) == ("before", "move_vm"):
            plane.observer.observe(OTHER)
            free.extend(row.free for row in plane.services.capacity.gpu_map() if row.host == OTHER)

    plane.hosts.strike = observe
    assert run(plane, operation).state == "done"
    assert free == [3]


def test_what_may_not_move_while_it_runs_is_refused_with_the_limits_words(plane: ControlPlane) -> None:
    with plane.store.begin() as tx:
        tx.offerings.put(replace(MIGRATABLE, name="fixed", migratable=False))
    plane.services.vms.create(replace(create_vm("fixed", profile="fixed"), host=L40S_HOST))
    plane.engine.drain()
    with pytest.raises(VgpuctlError) as refused:
        plane.services.moving.move(MoveVm(name="fixed", tenant="default", host=OTHER))
    assert refused.value.code == "vm.stays"
    assert [reason.code for reason in refused.value.reasons] == ["move.not_offered"]
    assert plane.services.vms.get("default", "fixed").state == "running"


@pytest.mark.parametrize("compares", [False, True])
def test_it_stays_where_the_other_hosts_driver_does_not_take_its_state(plane: ControlPlane, compares: bool) -> None:
    plane.hosts.compares = compares
    own = str(plane.machine(L40S_HOST).driver_version)
    for driver, taken in (("595.1", False), (f"{own}.7", compares), (own, True)):
        plane.machine(OTHER).driver_version = driver
        for name in (L40S_HOST, OTHER):
            plane.observer.observe(name)
        request = MoveVm(tenant="default", name="train", host=OTHER)
        if taken:
            assert plane.services.moving.plan(request).target == OTHER
        else:
            with pytest.raises(Conflict, match="driver"):
                plane.services.moving.plan(request)


def test_how_long_it_takes_and_stands_still_is_told_beside_what_was_forecast_and_learned_from(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, move_vm, pauses = plane.world.clock, plane.hosts.move_vm, list[int | None]()

    def takes(*of: Any) -> MovedVm:
        clock.sleep(4.0)
        pauses.append(of[4].max_pause_ms)
        return replace(move_vm(*of), paused_ms=500)

    def messages(operation: str | None) -> dict[str, str]:
        return {step.name: step.message for step in run(plane, operation).steps}

    monkeypatch.setattr(plane.hosts, "move_vm", takes)
    request = MoveVm(name="train", tenant="default")
    assert plane.services.moving.plan(request).live_low_s is None
    first = messages(move(plane))
    assert first["migrate.1"].endswith("took 4.0 s")
    assert first["go_on.1"] == "stood still for 0.5 s"
    plan = plane.services.moving.plan(request)
    assert (plan.live, plan.copy_low_s) == (True, None)
    assert plan.live_low_s is not None
    assert plan.live_high_s is not None
    assert plan.live_low_s < 4.0 < plan.live_high_s
    operation = move(plane)
    second = messages(operation)
    assert second["migrate.1"].endswith(f"took 4.0 s, forecast {plan.live_low_s:.1f} to {plan.live_high_s:.1f} s")
    assert second["go_on.1"] == f"stood still for 0.5 s, forecast {plan.pause_low_s:.1f} to {plan.pause_high_s:.1f} s"
    assert pauses == [300, 300]
    with plane.store.read() as tx:
        kept = tx.disk_copies.of_operation(str(operation))
        assert kept is not None
        assert [kept.seconds, kept.pause_s] == pytest.approx([4.0, 0.5], abs=0.1)
        assert (kept.low_s, kept.pause_high_s) == (plan.live_low_s, plan.pause_high_s)
        assert tx.disk_copies.measured(L40S_HOST, OTHER) == ()
        assert len(tx.disk_copies.measured_live(L40S_HOST, OTHER)) == 1


def test_a_host_that_does_not_say_what_it_has_to_move_keeps_it_from_nothing(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_of: object) -> MoveLoad:
        raise Retryable("host.busy", "it does not measure now")

    monkeypatch.setattr(plane.hosts, "move_load", silent)
    assert plane.services.moving.plan(MoveVm(name="train", tenant="default")).live_low_s is None
    assert run(plane, move(plane)).state == "done"
    whole(plane, OTHER)
