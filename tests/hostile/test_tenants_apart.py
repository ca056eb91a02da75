# SPDX-License-Identifier: Apache-2.0
"""No tenant gets a place on a GPU of another that wants none beside it: planned, created, explained, counted, raced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from orchestrator.core.errors import NoCapacity
from orchestrator.core.vms.isolation import ISOLATIONS, Isolation, may_share_gpu, may_share_host
from orchestrator.core.vms.vm import Vm
from orchestrator.services.fleet.index import FleetIndex
from orchestrator.services.vms.capacity import Question
from orchestrator.services.vms.planning import Planner
from tests.fakes.control_plane import ControlPlane, create_vm, plane_with

T4_4Q = "GRID T4-4Q"
"""Four of them are a GPU."""


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, "t4") as made:
        for name in ("red", "blue"):
            made.services.tenancy.tenants.create(name)
        yield made


def _wish(plane: ControlPlane, tenant: str, wish: Isolation) -> None:
    plane.services.tenancy.policies.change(tenant, {"isolation": wish})


def _created(plane: ControlPlane, tenant: str, name: str) -> Vm:
    plane.services.vms.create(replace(create_vm(name, profile=T4_4Q, start=False), tenant=tenant))
    plane.engine.drain()
    return plane.services.vms.get(tenant, name)


def _gpus(plane: ControlPlane, tenant: str) -> set[str]:
    return {device.gpu for vm in plane.services.vms.list((tenant,)) for device in vm.devices}


def _fill(plane: ControlPlane, tenant: str, count: int) -> int:
    for number in range(count):
        try:
            _created(plane, tenant, f"vm{number}")
        except NoCapacity:
            return number
    return count


def test_two_tenants_never_share_a_time_sliced_gpu_unless_both_say_so(plane: ControlPlane) -> None:
    assert _fill(plane, "red", 1) == 1
    assert _fill(plane, "blue", 5) == 4
    assert not _gpus(plane, "red") & _gpus(plane, "blue")
    _wish(plane, "red", "none")
    with pytest.raises(NoCapacity) as refused:
        _created(plane, "blue", "more")
    assert "gpu.other_tenant" in {reason.code for reason in refused.value.reasons}
    _wish(plane, "blue", "none")
    assert _created(plane, "blue", "more").devices[0].gpu in _gpus(plane, "red")


@pytest.mark.parametrize(("red", "blue"), list(product(ISOLATIONS, repeat=2)))
def test_plan_create_explain_and_capacity_say_the_same(plane: ControlPlane, red: Isolation, blue: Isolation) -> None:
    _wish(plane, "red", red)
    _wish(plane, "blue", blue)
    _created(plane, "red", "there")
    capacity = plane.services.capacity
    question = Question(profile=T4_4Q, tenant="blue")
    fits = may_share_host(red, blue)
    wanted = replace(create_vm("asked", profile=T4_4Q), tenant="blue")
    planned = None
    with suppress(NoCapacity):
        planned = plane.services.vms.plan(wanted)
    counted = sum(row.fits_now for row in capacity.capacity(question))
    assert (planned is not None) is fits
    assert capacity.explain(question).explanation.fits is fits
    assert counted == (0 if not fits else 7 if may_share_gpu(red, blue, divided=False) else 4)
    assert sum(row.fits_now for row in capacity.room(question, "blue")) == min(counted, 1)
    assert _fill(plane, "blue", 8) == counted


def test_a_claim_that_another_controller_has_overtaken_is_planned_again(plane: ControlPlane) -> None:
    """Its index has not heard of the other tenant's VM; the database has."""
    services = plane.services.vms
    other = replace(services, planner=Planner(index=_Late(plane), clock=plane.world.clock, ids=plane.ids))
    _created(plane, "red", "first")
    other.create(replace(create_vm("second", profile=T4_4Q, start=False), tenant="blue"))
    plane.engine.drain()
    assert not _gpus(plane, "red") & _gpus(plane, "blue")
    assert _gpus(plane, "blue")


class _Late(FleetIndex):
    """Hears of nothing at the first question after it was built."""

    def __init__(self, plane: ControlPlane) -> None:
        index = plane.services.vms.planner.index
        super().__init__(plane.store, index.overcommit)
        self._late = 0
        with self.current():
            pass
        self._late = 1

    def _read_changes(self) -> None:
        if not self._late:
            super()._read_changes()
        self._late = max(0, self._late - 1)


def test_vms_that_share_already_stay_and_are_told_of(plane: ControlPlane) -> None:
    for tenant in ("red", "blue"):
        _wish(plane, tenant, "none")
        _created(plane, tenant, "vm")
    assert _gpus(plane, "red") == _gpus(plane, "blue")
    plane.reconciler.round()
    assert not plane.findings.list(host=None)
    _wish(plane, "red", "instance")
    plane.reconciler.round()
    assert [(one.finding.code, one.finding.observed) for one in plane.findings.list(host=None)] == [
        ("gpu.shared", "VMs of blue, red")
    ]
    assert {vm.state for vm in plane.services.vms.list(None)} == {"stopped"}
    plane.services.vms.delete("red", "vm")
    plane.engine.drain()
    plane.reconciler.round()
    assert not plane.findings.list(host=None)


def test_a_vm_that_gave_its_place_back_gets_it_again_under_the_rule_of_now(plane: ControlPlane) -> None:
    for tenant in ("red", "blue"):
        _wish(plane, tenant, "none")
        _created(plane, tenant, "vm")
    _wish(plane, "red", "host")
    with pytest.raises(NoCapacity):
        _created(plane, "red", "more")
