# SPDX-License-Identifier: Apache-2.0
"""Each operation says who asked for it, and why the server began it where nobody did."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.api.schemas.operations import OperationAnswer
from orchestrator.core.vms.lease import WantedEnd
from orchestrator.services.acting import act_for
from orchestrator.services.site_time import EVEN_FOR_S
from tests.fakes.control_plane import T4_HOST, ControlPlane, create_vm, plane_with
from tests.fakes.drivers import with_bundle
from tests.operations.test_driver_upgrades import NEW, OLD, upgraded

ALICE, OPERATOR = "uid:1001", "uid:0"
ALL_OF_IT = "GRID T4-16Q"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST) as made:
        yield made
        act_for("server", of_pool=True)


def history(plane: ControlPlane, name: str = "train") -> list[tuple[str, str | None, str | None]]:
    """Oldest first: what, who and why, as the VM's tenant is told."""
    found = plane.services.operations.list(limit=50, subject=plane.services.vms.get("default", name).id)
    told = [OperationAnswer.of(one, watching=False) for one in reversed(found)]
    return [(one.model_dump()["kind"], one.asked_by, one.why) for one in told]


def test_a_tenant_is_told_who_of_it_asked_and_no_names_of_the_pools_people(plane: ControlPlane) -> None:
    act_for(ALICE)
    plane.services.vms.create(create_vm())
    plane.engine.drain()
    act_for(OPERATOR, of_pool=True)
    plane.services.vms.stop("default", "train")
    plane.engine.drain()
    assert history(plane) == [("create_vm", ALICE, None), ("stop_vm", "operator", None)]
    newest = plane.services.operations.list(limit=1)[0]
    assert OperationAnswer.of(newest, watching=True).asked_by == OPERATOR


def test_a_lease_that_ends_is_why_its_vm_is_freed(plane: ControlPlane) -> None:
    act_for(ALICE)
    plane.services.vms.create(replace(create_vm(), end=WantedEnd(after_s=3600)))
    plane.engine.drain()
    for _ in range(2):
        plane.world.clock.sleep(EVEN_FOR_S)
        plane.reconciler.observe(T4_HOST)
        plane.engine.drain()
    assert history(plane)[1:] == [("free_vm", "server", "its lease has ended")]


def test_the_owner_of_a_preempted_vm_is_told_why_and_not_by_whom(plane: ControlPlane) -> None:
    plane.services.tenancy.policies.change("default", {"max_priority": "high", "preempt": True})
    for number in range(len(plane.services.gpus.list(T4_HOST))):
        plane.services.vms.create(replace(create_vm(f"low{number}", profile=ALL_OF_IT), priority="low"))
    plane.engine.drain()
    act_for(ALICE)
    plane.services.vms.create(replace(create_vm("urgent", profile=ALL_OF_IT), priority="high", preempt=True))
    plane.engine.drain()
    freed = [one for one in plane.services.operations.list(limit=50) if one.kind == "free_vm"]
    told = [OperationAnswer.of(one, watching=False) for one in freed]
    assert [(one.asked_by, one.why) for one in told] == [("server", "a VM of higher priority takes its place")]


def test_a_driver_upgrade_is_why_a_vm_stops_and_starts(plane: ControlPlane) -> None:
    for version in (OLD, NEW):
        with_bundle(plane, version)
    plane.services.vms.create(create_vm())
    plane.engine.drain()
    upgraded(plane)
    why = f"the driver upgrade to {NEW}"
    assert history(plane)[1:] == [("stop_vm", "server", why), ("start_vm", "server", why)]


def test_a_repair_says_which_finding_it_is_for_and_who_asked(plane: ControlPlane) -> None:
    plane.services.vms.create(create_vm())
    plane.engine.drain()
    vm = plane.services.vms.get("default", "train").id
    plane.machine(T4_HOST).domains[vm] = (plane.machine(T4_HOST).domains[vm][0], False)
    plane.findings.observe(T4_HOST)
    act_for(OPERATOR, of_pool=True)
    plane.findings.repair(host=None)
    plane.engine.drain()
    assert history(plane)[1:] == [("start_vm", "operator", "repair of vm.not_running")]
