# SPDX-License-Identifier: Apache-2.0
"""What is repaired without being asked, how often, and on what it may rely."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.reconcile.repairs import Pacing, RepairPolicy
from tests.fakes.control_plane import T4_HOST, ControlPlane, create_vm, plane_with
from tests.fakes.fake_world import FakeClock


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST) as made:
        yield made
        made.reconciler.close()


def powered_off(plane: ControlPlane, name: str) -> None:
    """A VM that runs, until somebody powers it off on its host."""
    plane.services.vms.create(create_vm(name))
    plane.engine.drain()
    vm, machine = plane.services.vms.get("default", name), plane.machine(T4_HOST)
    machine.domains[vm.id] = (machine.domains[vm.id][0], False)


def observed(plane: ControlPlane, policy: RepairPolicy, per_hour: int = 20) -> list[str]:
    """States of the VMs after the host was observed, and what was begun by itself has ended."""
    repairer = replace(plane.reconciler.repairer, policy=policy, pacing=Pacing(plane.world.clock, per_hour=per_hour))
    replace(plane.reconciler, repairer=repairer).observe(T4_HOST)
    plane.engine.drain()
    return sorted(vm.state for vm in plane.services.vms.list(None))


@pytest.mark.parametrize(("policy", "state"), [("none", "stopped"), ("safe", "stopped"), ("all", "running")])
def test_a_vm_that_was_powered_off_is_started_by_itself_where_the_site_says_so(
    plane: ControlPlane, policy: RepairPolicy, state: str
) -> None:
    powered_off(plane, "train")
    assert observed(plane, policy) == [state]


def test_no_more_is_repaired_by_itself_than_an_hour_allows_and_asking_is_not_limited(plane: ControlPlane) -> None:
    for name in ("one", "two", "three"):
        powered_off(plane, name)
    assert observed(plane, "all", per_hour=2) == ["running", "running", "stopped"]
    plane.findings.repair(host=None)
    plane.engine.drain()
    assert {vm.state for vm in plane.services.vms.list(None)} == {"running"}


def test_the_pace_is_kept_by_the_clock_that_nobody_sets() -> None:
    clock = FakeClock()
    pacing = Pacing(clock, per_hour=1)
    pacing.compared("h")
    assert pacing.may_begin()
    assert not pacing.may_try_again("o")
    clock.ahead += 90_000.0
    assert (pacing.is_fresh("h"), pacing.may_begin(), pacing.may_try_again("o")) == (True, False, False)
    clock.sleep(3600.0)
    assert (pacing.is_fresh("h"), pacing.may_begin(), pacing.may_try_again("o")) == (False, True, True)


def test_a_repair_that_is_asked_for_looks_first_where_this_server_has_not_compared_lately(plane: ControlPlane) -> None:
    powered_off(plane, "train")
    plane.findings.observe(T4_HOST)
    plane.world.clock.sleep(3600.0)
    vm, machine = plane.services.vms.get("default", "train"), plane.machine(T4_HOST)
    machine.domains[vm.id] = (machine.domains[vm.id][0], True)
    assert plane.findings.repair(host=None) == ()
