# SPDX-License-Identifier: Apache-2.0
"""A running VM whose move QEMU gives up: it is tried again, and shut down for it only where that was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict, Fatal
from orchestrator.core.vms.lease import TenantPolicy
from orchestrator.services.messages import MoveVm
from tests.fakes.control_plane import L40S_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.fake_host import Crash, lost_answer
from tests.operations.moves import MIGRATABLE, OTHER, with_running_vm
from tests.operations.test_live_moving import Fault, run, runs_on, whole


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    made = control_plane(tmp_path)
    with_running_vm(made)
    yield made
    made.store.close()


def fails(plane: ControlPlane, times: int) -> None:
    """QEMU gives the move up, so many times."""
    left = [None] * times

    def strike(_number: int, at: str, effect: str) -> BaseException | None:
        assert len(runs_on(plane)) <= 1, effect
        if (at, effect) == ("before", "move_vm") and left:
            left.pop()
            return Fatal("move.failed", f"host {L40S_HOST}: the VM did not move: the device refuses")
        return None

    plane.hosts.strike = strike


def begin(plane: ControlPlane, *, or_cold: bool = False, force: bool = False) -> str:
    return str(
        plane.services.moving.move(MoveVm(name="train", tenant="default", or_cold=or_cold, force=force)).operation
    )


def test_what_a_device_refuses_once_or_twice_is_tried_again(plane: ControlPlane) -> None:
    operation = begin(plane)
    fails(plane, 2)
    assert run(plane, operation).state == "done"
    assert plane.hosts.effects.count("move_vm") == 3
    whole(plane, OTHER)


@pytest.mark.parametrize("or_cold,policy", [(False, "stop"), (True, "wait"), (True, "23:59-00:00")])
def test_what_a_device_refuses_three_times_stays_and_is_told_how_it_could_go(
    plane: ControlPlane, or_cold: bool, policy: str
) -> None:
    with plane.store.begin() as tx:
        tx.policies.put("default", TenantPolicy(maintenance=policy))
    operation = begin(plane, or_cold=or_cold)
    fails(plane, 3)
    ended = run(plane, operation)
    error = ended.error or {}
    assert (ended.state, error["code"]) == ("undone", "move.failed")
    assert "the device refuses" in str(error["message"])
    assert "'vgpuctl vm move train --tenant default --cold'" in str(error["hint"])
    whole(plane, L40S_HOST)


@pytest.mark.parametrize("force", [False, True])
def test_it_is_shut_down_for_it_where_that_was_asked_for_and_its_tenant_lets_it_be(
    plane: ControlPlane, force: bool
) -> None:
    with plane.store.begin() as tx:
        tx.policies.put("default", TenantPolicy(maintenance="wait" if force else "stop"))
    operation = begin(plane, or_cold=True, force=force)
    fails(plane, 3)
    ended = run(plane, operation)
    assert ended.state == "done"
    assert "shut down for its move, which failed 3 times" in ended.warnings[0]
    whole(plane, OTHER, booted_on=OTHER)


def test_one_with_a_tpm_is_not_shut_down_for_it(plane: ControlPlane) -> None:
    """What its guest has sealed would be lost with the TPM that stays."""
    vm = plane.services.vms.get("default", "train")
    with plane.store.begin() as tx:
        tx.vms.set_spec(vm.id, replace(vm.spec, tpm=True))
    operation = begin(plane, or_cold=True, force=True)
    fails(plane, 3)
    ended = run(plane, operation)
    assert (ended.state, (ended.error or {})["code"]) == ("undone", "move.failed")
    assert "TPM" in str((ended.error or {})["hint"])
    whole(plane, L40S_HOST)


@pytest.mark.parametrize("effect", ["StopDomain", "copy_volume", "StartDomain"])
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(
    "fault", [partial(Fatal, "test.refused"), lost_answer, lambda _: Crash()], ids=["refused", "lost", "killed"]
)
def test_whatever_fails_when_it_is_shut_down_for_it_it_runs_on_one_host_and_is_whole_there(
    plane: ControlPlane, effect: str, moment: str, fault: Fault
) -> None:
    operation, left = begin(plane, or_cold=True), [fault]
    fails(plane, 3)
    failing = plane.hosts.strike

    def strike(number: int, at: str, name: str) -> BaseException | None:
        if plane.hosts.effects.count("move_vm") >= 3 and (at, name) == (moment, effect) and left:
            return left.pop()(name)
        return failing(number, at, name)

    plane.hosts.strike = strike
    ended = run(plane, operation)
    if ended.state == "stuck":
        plane.services.operations.retry(ended.id)
        ended = run(plane, operation)
    assert ended.state in {"done", "undone"}
    host = OTHER if ended.state == "done" else L40S_HOST
    assert runs_on(plane) == [host]
    assert plane.services.vms.get("default", "train").host == host


def test_what_may_not_move_while_it_runs_goes_cold_where_that_was_asked_for(plane: ControlPlane) -> None:
    with plane.store.begin() as tx:
        tx.offerings.put(replace(MIGRATABLE, name="fixed", migratable=False))
    plane.services.vms.create(replace(create_vm("fixed", profile="fixed"), host=L40S_HOST))
    plane.engine.drain()
    request = MoveVm(name="fixed", tenant="default", or_cold=True)
    for policy, may in (("wait", False), ("stop", True)):
        with plane.store.begin() as tx:
            tx.policies.put("default", TenantPolicy(maintenance=policy))
        if may:
            assert run(plane, plane.services.moving.move(request).operation).kind == "move_vm_cold"
        else:
            with pytest.raises(Conflict) as refused:
                plane.services.moving.plan(request)
            assert refused.value.code == "vm.not_now"
