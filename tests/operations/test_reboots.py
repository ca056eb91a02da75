# SPDX-License-Identifier: Apache-2.0
"""A host is rebooted: emptied first, back with what was well, and never while anything runs there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict, Fatal
from orchestrator.core.gpu.health import GpuSignal
from orchestrator.core.maintenance.maintenance import HostTurn
from orchestrator.services.maintenance.maintenances import WantedDrain
from tests.fakes import foreign
from tests.fakes.control_plane import L40S_HOST, ControlPlane, create_vm
from tests.fakes.fake_host import lost_answer, no_fault
from tests.operations.moves import MIGRATABLE, OTHER, plane_of_hosts, where
from tests.operations.test_driver_upgrades import go_on


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """``train`` on the first GPU of its host."""
    made = plane_of_hosts(tmp_path)
    vm = create_vm("train", profile=MIGRATABLE.name)
    made.services.vms.create(replace(vm, host=L40S_HOST, gpu=made.machine(L40S_HOST).gpus[0].address))
    made.engine.drain()
    yield made
    made.store.close()


def rebooted(plane: ControlPlane, wanted: WantedDrain | None = None) -> HostTurn:
    plane.services.maintenances.drain(L40S_HOST, wanted or WantedDrain(), act="reboot")
    return go_on(plane).host(L40S_HOST)


def boots(plane: ControlPlane) -> int:
    return plane.machine(L40S_HOST).boot


def host_now(plane: ControlPlane) -> tuple[str, bool]:
    host = plane.services.hosts.get(L40S_HOST).host
    return host.state, host.cordoned


def test_its_vms_move_it_reboots_once_and_serves_again_by_itself(plane: ControlPlane) -> None:
    turn = rebooted(plane)
    assert (turn.phase, boots(plane), host_now(plane)) == ("done", 2, ("ready", False))
    assert where(plane)["train"] == (OTHER, "running")
    assert plane.services.maintenances.get().state == "done"


def test_vms_that_are_stopped_for_it_run_again_on_it(plane: ControlPlane) -> None:
    turn = rebooted(plane, WantedDrain(policy="stop"))
    assert (turn.phase, boots(plane), where(plane)["train"]) == ("done", 2, (L40S_HOST, "running"))


def test_a_host_whose_vm_has_no_place_elsewhere_is_not_rebooted_until_it_is_cancelled(plane: ControlPlane) -> None:
    plane.services.hosts.cordon(OTHER, None)
    turn = rebooted(plane)
    assert (turn.phase, boots(plane), where(plane)["train"]) == ("emptying", 1, (L40S_HOST, "running"))
    with pytest.raises(Conflict) as refused:
        plane.services.hosts.uncordon(L40S_HOST)
    assert "maintenance cancel" in str(refused.value.hint)
    plane.services.maintenances.cancel()
    assert (go_on(plane).host(L40S_HOST).phase, boots(plane), host_now(plane)) == ("kept", 1, ("ready", False))


def test_what_others_run_there_is_never_ended(plane: ControlPlane) -> None:
    foreign.with_functions(plane.machine(L40S_HOST))
    turn = rebooted(plane)
    assert (turn.phase, boots(plane), host_now(plane)) == ("kept", 1, ("ready", False))
    assert "is to be rebooted and runs byhand" in turn.why


def test_an_answer_that_is_lost_reboots_it_once(plane: ControlPlane) -> None:
    plane.hosts.strike = lambda _, moment, name: (
        lost_answer(name) if (moment, name) == ("after", "RebootHost") else None
    )
    assert (rebooted(plane).phase, boots(plane)) == ("done", 2)


def test_a_host_that_does_not_return_is_failed_by_name_and_takes_no_vms(plane: ControlPlane) -> None:
    def strike(_number: int, moment: str, name: str) -> None:
        if (moment, name) == ("after", "RebootHost"):
            plane.machine(L40S_HOST).away = 10**6

    plane.hosts.strike = strike
    turn = rebooted(plane)
    assert (turn.phase, host_now(plane)) == ("failed", ("unreachable", True))
    assert "did not come back from its reboot (it was asked for)" in turn.why
    assert plane.hosts.effects.count("RebootHost") == 1


def test_an_agent_that_refuses_leaves_it_as_it_was(plane: ControlPlane) -> None:
    plane.hosts.strike = lambda _, moment, name: (
        Fatal("host.reboot_refused", "the host's systemd does not reboot it")
        if (moment, name) == ("before", "RebootHost")
        else None
    )
    turn = rebooted(plane)
    plane.hosts.strike = no_fault
    assert (turn.phase, boots(plane), where(plane)["train"]) == ("kept", 1, (OTHER, "running"))
    assert host_now(plane) == ("ready", False)


@pytest.mark.parametrize(("number", "phase"), [(0, "done"), (1, "failed")])
def test_a_gpu_that_was_ill_before_need_not_be_well_afterwards_and_others_have_to(
    plane: ControlPlane, number: int, phase: str
) -> None:
    machine = plane.machine(L40S_HOST)
    machine.gpus[0].signals = (GpuSignal(name="xid-79", at=5),)
    plane.findings.observe(L40S_HOST)

    def strike(_number: int, moment: str, name: str) -> None:
        if (moment, name) == ("after", "RebootHost"):
            machine.gpus[number].driver = None

    plane.hosts.strike = strike
    assert rebooted(plane).phase == phase


def test_another_drain_of_a_host_that_is_to_reboot_is_refused(plane: ControlPlane) -> None:
    plane.services.hosts.cordon(OTHER, None)
    rebooted(plane)
    with pytest.raises(Conflict) as refused:
        plane.services.maintenances.drain(L40S_HOST, WantedDrain())
    assert (refused.value.code, "the reboot" in refused.value.message) == ("host.busy", True)
