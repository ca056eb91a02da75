# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import Denied, Fatal, InvalidInput, NoCapacity, VgpuctlError
from orchestrator.core.vms.priority import Priority
from orchestrator.core.vms.vm import Vm
from orchestrator.services.messages import CreateVm, Started
from tests.fakes.control_plane import T4_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.fake_host import FakeHosts, no_fault
from tests.fakes.fake_machine import FakeMachine, t4

ALL_OF_IT, QUARTER = "GRID T4-16Q", "GRID T4-4Q"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """One GPU; the default tenant may have others stopped, ``other`` has no policy."""
    made = control_plane(tmp_path, hosts=FakeHosts({f"{T4_HOST}.test": FakeMachine(machine_id="m1", gpus=[t4()])}))
    made.add_host(T4_HOST)
    made.services.tenancy.policies.change("default", {"max_priority": "high", "preempt": True})
    made.services.tenancy.tenants.create("other")
    yield made
    made.store.close()


def asked(name: str, priority: Priority, profile: str = ALL_OF_IT, *, tenant: str = "default") -> CreateVm:
    return replace(create_vm(name, profile=profile), priority=priority, tenant=tenant)


def running(plane: ControlPlane, request: CreateVm) -> Vm:
    plane.services.vms.create(request)
    plane.engine.drain()
    vm = plane.services.vms.get(request.tenant, request.name)
    assert vm.state == "running"
    return vm


def preempt(plane: ControlPlane, request: CreateVm) -> Started:
    return plane.services.vms.create(replace(request, preempt=True))


def refused(plane: ControlPlane, request: CreateVm, code: str) -> VgpuctlError:
    """By create and dry run alike, with nothing changed."""
    before = plane.services.vms.list(None)
    for ask in (plane.services.vms.plan, plane.services.vms.create):
        with pytest.raises(VgpuctlError) as raised:
            ask(replace(request, preempt=True))
        assert raised.value.code == code
    assert plane.services.vms.list(None) == before
    return raised.value


def found(plane: ControlPlane, name: str, tenant: str = "default") -> Vm:
    return plane.services.vms.get(tenant, name)


def test_a_more_important_vm_takes_the_place_of_a_less_important_one(plane: ControlPlane) -> None:
    victim = running(plane, asked("batch", "low"))
    dry = plane.services.vms.plan(replace(asked("train", "high"), preempt=True))
    assert dry.preempts == ("default/batch",)
    started = preempt(plane, asked("train", "high"))
    assert found(plane, "train").state == "creating"
    assert preempt(plane, asked("train", "high")).operation == started.operation
    plane.engine.drain()
    assert plane.services.operations.get(str(started.operation)).state == "done"
    assert found(plane, "train").state == "running"
    gone = found(plane, "batch")
    assert (gone.state, gone.deallocated, gone.id) == ("stopped", "preempted", victim.id)
    assert victim.volume in plane.machine(T4_HOST).volumes
    with plane.store.read() as tx:
        told = [(one.subject, one.outcome) for one in tx.audit.all() if one.action == "preempt"]
    assert told == [("default/batch", "for default/train")]
    with pytest.raises(NoCapacity):
        plane.services.vms.start("default", "batch")
    plane.services.vms.delete("default", "train")
    plane.engine.drain()
    plane.services.vms.start("default", "batch")
    plane.engine.drain()
    assert found(plane, "batch").state == "running"
    assert found(plane, "batch").deallocated is None


def test_what_fits_stops_nobody_and_without_asking_nobody_is_stopped(plane: ControlPlane) -> None:
    running(plane, asked("batch", "low", QUARTER))
    assert preempt(plane, asked("train", "high", QUARTER)).first == ()
    plane.engine.drain()
    with pytest.raises(NoCapacity):
        plane.services.vms.create(asked("more", "high"))
    assert [vm.state for vm in plane.services.vms.list(None)] == ["running", "running"]


@pytest.mark.parametrize(("there", "wanted"), [("high", "high"), ("normal", "normal"), ("normal", "low")])
def test_equal_and_higher_priority_is_never_stopped(plane: ControlPlane, there: Priority, wanted: Priority) -> None:
    running(plane, asked("batch", there))
    refused(plane, asked("train", wanted), "gpu.no_capacity")


def test_only_a_tenant_whose_policy_says_so_has_others_stopped(plane: ControlPlane) -> None:
    running(plane, asked("batch", "low"))
    error = refused(plane, asked("train", "normal", tenant="other"), "preemption.not_allowed")
    assert isinstance(error, Denied)
    error = refused(plane, replace(asked("train", "high"), start=False), "preemption.not_started")
    assert isinstance(error, InvalidInput)


def test_what_a_tenants_own_quota_promises_is_never_taken_from_it(plane: ControlPlane) -> None:
    running(plane, asked("batch", "low", tenant="other"))
    plane.services.tenancy.quotas.change("other", {"devices": 1})
    refused(plane, asked("train", "high"), "gpu.no_capacity")
    plane.services.tenancy.quotas.change("other", {"devices": 0})
    preempt(plane, asked("train", "high"))
    plane.engine.drain()
    assert found(plane, "batch", "other").deallocated == "preempted"


def test_while_several_are_stopped_nobody_else_gets_what_they_gave_back(plane: ControlPlane) -> None:
    for name in ("one", "two"):
        running(plane, asked(name, "low", QUARTER))
    started = preempt(plane, asked("train", "high"))
    assert len(started.first) == 2
    plane.engine.waiting[:] = [started.first[0]]
    plane.engine.drain()
    with pytest.raises(NoCapacity) as raised:
        plane.services.vms.create(asked("quick", "normal", QUARTER))
    assert "it is being cleared for another VM" in str(raised.value.reasons)
    assert not plane.services.vms.list(("other",))
    plane.engine.submit(str(started.operation))  # too early: it waits
    plane.engine.drain()
    assert found(plane, "train").state == "creating"
    with plane.store.read() as tx:
        assert [one.operation for one in tx.operations.due()] == [started.first[1]]
    for operation in (started.first[1], str(started.operation)):
        plane.engine.submit(operation)
    plane.engine.drain()
    assert found(plane, "train").state == "running"


def test_when_a_victim_cannot_be_stopped_the_new_vm_is_taken_back_and_the_victim_keeps_its_claim(
    plane: ControlPlane,
) -> None:
    victim = running(plane, asked("batch", "low"))
    plane.hosts.strike = lambda _n, moment, name: (
        Fatal("test.refused", "no") if (moment, name) == ("before", "StopDomain") else None
    )
    started = preempt(plane, asked("train", "high"))
    plane.engine.drain()
    plane.hosts.strike = no_fault
    ended = plane.services.operations.get(str(started.operation))
    assert ended.state == "undone"
    assert (ended.error or {})["code"] == "preemption.not_freed"
    assert [vm.spec.name for vm in plane.services.vms.list(None)] == ["batch"]
    with plane.store.read() as tx:
        assert tx.claims.find(victim.id) is not None


def test_a_vm_that_waits_can_be_deleted(plane: ControlPlane) -> None:
    running(plane, asked("batch", "low"))
    preempt(plane, asked("train", "high"))
    plane.services.vms.delete("default", "train")
    plane.engine.drain()
    assert [vm.spec.name for vm in plane.services.vms.list(None)] == ["batch"]
    plane.services.vms.start("default", "batch")
    plane.engine.drain()
    assert found(plane, "batch").state == "running"
