# SPDX-License-Identifier: Apache-2.0
"""A host that is kept for a tenant: nobody else is placed there, in whatever way; who is there stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict, NoCapacity, NotFound
from orchestrator.core.labels import KEPT_FOR
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.vms.lease import WantedEnd
from orchestrator.services.messages import CreateVm, HostChange
from orchestrator.services.vms.capacity import CapacityService, Question
from orchestrator.store.records import ClaimLost
from tests.fakes.control_plane import GIB, T4_HOST, ControlPlane, create_vm, plane_with


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST) as made:
        made.services.tenancy.tenants.create("vision")
        yield made


def keep(plane: ControlPlane, tenant: str | None = "vision") -> None:
    plane.services.hosts.change(T4_HOST, HostChange(labels={KEPT_FOR: tenant}))


def of_vision(name: str = "theirs") -> CreateVm:
    return replace(create_vm(name), tenant="vision")


def codes(refused: NoCapacity) -> list[tuple[str, str]]:
    return [(one.code, one.message) for one in refused.reasons]


KEPT = [("host.kept", "the host is kept for another tenant: vision")]


def test_only_its_tenant_is_placed_whoever_asks(plane: ControlPlane) -> None:
    keep(plane)
    planner = plane.services.vms.planner
    capacity = CapacityService(store=plane.store, index=planner.index, clock=planner.clock, moves=plane.services.moves)
    for tenant, fits in (("default", False), ("vision", True)):
        question = Question(profile="GRID T4-2Q", tenant=tenant, disk_bytes=GIB)
        explained = capacity.explain(question).explanation
        (row,), (room,) = capacity.capacity(question), capacity.room(question, tenant)
        assert (explained.fits, row.fits_now > 0, room.fits_now > 0) == (fits, fits, fits)
        if not fits:
            assert [(one.code, one.message) for one in explained.reasons] == KEPT
            assert row.reason is not None
            assert row.reason.code == "host.kept"
    for ask in (plane.services.vms.plan, plane.services.vms.create):
        with pytest.raises(NoCapacity) as caught:
            ask(create_vm())
        assert codes(caught.value) == KEPT
    assert plane.services.vms.plan(of_vision()).host == T4_HOST
    plane.services.vms.create(of_vision())
    plane.engine.drain()
    assert plane.services.vms.get("vision", "theirs").state == "running"


def test_who_is_there_stays_and_starts_again(plane: ControlPlane) -> None:
    vms = plane.services.vms
    vms.create(create_vm("a"))
    plane.engine.drain()
    keep(plane)
    vms.stop("default", "a")
    plane.engine.drain()
    vms.start("default", "a")
    plane.engine.drain()
    assert vms.get("default", "a").state == "running"


def test_who_gave_its_place_back_gets_none_there(plane: ControlPlane) -> None:
    vms = plane.services.vms
    vms.create(replace(create_vm("a"), end=WantedEnd(after_s=600)))
    plane.engine.drain()
    plane.look(T4_HOST, after_s=700)
    assert vms.get("default", "a").deallocated == "lease_over"
    vms.extend("default", "a", WantedEnd(after_s=7200))
    keep(plane)
    with pytest.raises(NoCapacity) as caught:
        vms.start("default", "a")
    assert codes(caught.value) == KEPT
    keep(plane, None)
    vms.start("default", "a")
    plane.engine.drain()
    assert vms.get("default", "a").state == "running"


def test_a_plan_that_was_made_before_is_not_claimed(plane: ControlPlane) -> None:
    vms = plane.services.vms
    with plane.store.begin() as tx:
        vms.networks.make_default(tx, "default")
    with vms.planner.index.current(), plane.store.read() as tx:
        plan = vms._planned(tx, create_vm("late"), None, reserve=False, may_ask=False)
    keep(plane)
    with pytest.raises(ClaimLost, match="is kept for tenant vision"), plane.store.claim() as tx:
        vms._claim(tx, create_vm("late"), plan)
    with plane.store.read() as tx:
        assert (tx.vms.list(), tx.claims.list()) == ((), ())


def test_a_place_that_was_planned_before_for_one_who_is_deallocated_is_not_claimed(plane: ControlPlane) -> None:
    vms = plane.services.vms
    vms.create(replace(create_vm("a"), end=WantedEnd(after_s=600)))
    plane.engine.drain()
    plane.look(T4_HOST, after_s=700)
    vms.extend("default", "a", WantedEnd(after_s=7200))
    vm = vms.get("default", "a")
    with vms.planner.index.current(), plane.store.read() as tx:
        plan = vms.planner.plan(tx, replace(vm.spec, host=vm.host), vm)
    keep(plane)
    with pytest.raises(ClaimLost, match="is kept for tenant vision"):
        vms._begin_start("default", "a", plan)
    assert vms.get("default", "a").deallocated == "lease_over"


def test_a_place_that_was_cleared_for_another_is_not_claimed(plane: ControlPlane) -> None:
    vms = plane.services.vms
    plane.services.tenancy.policies.change("default", {"max_priority": "high", "preempt": True})
    with plane.store.read() as tx:
        gpus = len(tx.hosts.get(T4_HOST).managed_gpus)
    for number in range(gpus):
        vms.create(replace(create_vm(f"low{number}", profile="GRID T4-16Q"), priority="low"))
    plane.engine.drain()
    started = vms.create(replace(create_vm("high", profile="GRID T4-16Q"), priority="high", preempt=True))
    assert started.preempted
    keep(plane)
    plane.engine.drain()
    operation = plane.services.operations.get(str(started.operation))
    assert operation.state == "undone"
    assert operation.error is not None
    assert operation.error["details"] == "host t4 is kept for tenant vision now"
    with plane.store.read() as tx:
        assert tx.vms.find("default", "high") is None


def test_no_volume_of_others_is_put_there(plane: ControlPlane) -> None:
    keep(plane)
    with pytest.raises(NoCapacity) as caught:
        plane.services.volumes.create("default", "data", GIB, T4_HOST)
    assert caught.value.code == "host.kept"
    assert plane.services.volumes.list(None) == ()
    assert plane.services.volumes.create("vision", "data", GIB, T4_HOST).volume.host == T4_HOST


THEIRS = Offering(
    name="vision-big", origin="site", kind="time_sliced", vgpu_type="GRID T4-2Q", hosts=((KEPT_FOR, "vision"),)
)


def ways_to_ask(plane: ControlPlane, name: str) -> tuple[Callable[[], object], ...]:
    services, capacity = plane.services, plane.services.capacity
    made, asked = create_vm("a", profile=name), Question(profile=name, disk_bytes=GIB)
    return (
        lambda: services.vms.create(made),
        lambda: services.vms.plan(made),
        lambda: capacity.explain(asked),
        lambda: capacity.explain_for_tenant(asked),
        lambda: capacity.capacity(asked),
        lambda: capacity.room(asked, "default"),
        lambda: services.profiles.get(name, ("default",)),
    )


def test_an_offering_on_kept_hosts_is_its_tenants_and_for_others_not_there(plane: ControlPlane) -> None:
    services, capacity = plane.services, plane.services.capacity
    keep(plane)
    services.offerings.put(THEIRS, look_up=True)
    for name in ("vision-big", "vision-bog"):
        for way in ways_to_ask(plane, name):
            with pytest.raises(NotFound) as refused:
                way()
            assert (refused.value.code, refused.value.message) == ("profile.unknown", f"no profile is called '{name}'")
            assert "vision-big" not in str(refused.value.hint)
    rows = {
        tenant: {row.profile for row in capacity.room(Question(each=True), tenant)} for tenant in ("default", "vision")
    }
    assert ["vision-big" in rows[tenant] for tenant in ("default", "vision")] == [False, True]
    for tenants, is_told in ((("default",), False), (("default", "vision"), True), (None, True)):
        told = {info.offering.name: info for info in services.profiles.list(tenants)}
        assert ("vision-big" in told) is is_told
        assert (services.offerings.list(tenants) == (THEIRS,)) is is_told
        assert not is_told or told["vision-big"].free > 0
    services.vms.create(replace(of_vision(), profile="vision-big"))
    plane.engine.drain()
    assert services.vms.get("vision", "theirs").state == "running"


def test_an_offering_is_kept_for_a_tenant_that_there_is_and_that_stays(plane: ControlPlane) -> None:
    with pytest.raises(NotFound) as unknown:
        plane.services.offerings.put(replace(THEIRS, hosts=((KEPT_FOR, "visoin"),)), look_up=True)
    assert unknown.value.code == "tenant.unknown"
    plane.services.offerings.put(THEIRS, look_up=True)
    with pytest.raises(Conflict) as caught:
        plane.services.tenancy.tenants.delete("vision")
    assert (caught.value.code, caught.value.hint) == ("tenant.in_use", "'vgpuctl profile remove vision-big'")
    plane.services.offerings.remove("vision-big")
    plane.services.tenancy.tenants.delete("vision")


def test_a_host_is_kept_for_a_tenant_that_there_is_and_that_stays(plane: ControlPlane) -> None:
    with pytest.raises(NotFound) as unknown:
        keep(plane, "visoin")
    assert unknown.value.code == "tenant.unknown"
    assert plane.services.hosts.get(T4_HOST).host.labels == ()
    keep(plane)
    with pytest.raises(Conflict) as caught:
        plane.services.tenancy.tenants.delete("vision")
    assert (caught.value.code, caught.value.hint) == ("tenant.in_use", "'vgpuctl host set t4 --unlabel kept-for'")
    keep(plane, None)
    plane.services.tenancy.tenants.delete("vision")
