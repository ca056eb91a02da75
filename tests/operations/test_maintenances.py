# SPDX-License-Identifier: Apache-2.0
"""A maintenance is declared: when it begins and is to be over, what its tenants are told, and what is said when it is
late."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict, InvalidInput, NotFound
from orchestrator.core.event import EventFilter, FleetChange
from orchestrator.core.maintenance.leaving import parse_window
from orchestrator.core.maintenance.maintenance import DrainPolicy, Planned
from orchestrator.reconcile.dead_hosts import DeadHosts
from orchestrator.services.maintenance.maintenances import WantedDrain, WantedEvacuation
from tests.fakes.control_plane import A100_HOST, L40S_HOST, T4_HOST, ControlPlane, create_vm, plane_with
from tests.fakes.drivers import with_bundle
from tests.operations.evacuations import dies, fencing
from tests.operations.test_driver_upgrades import NEW, OLD, PROFILES, go_on, phases, upgraded, wanted

HOUR_S = 3600


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST, A100_HOST) as made:
        with_bundle(made, OLD)
        with_bundle(made, NEW)
        for tenant, host in (("red", T4_HOST), ("blue", A100_HOST)):
            made.services.tenancy.tenants.create(tenant)
            made.services.vms.create(replace(create_vm("train", profile=PROFILES[host]), tenant=tenant))
        made.engine.drain()
        yield made


def told(plane: ControlPlane, tenant: str) -> list[FleetChange]:
    with plane.store.begin() as tx:
        only = EventFilter(tenants=frozenset({tenant}), nouns=frozenset({"maintenance"}))
        return [event.change for event in tx.events.last(tx.events.newest(), only, most=100)]


def findings(plane: ControlPlane, host: str) -> list[str]:
    plane.reconciler.observe(host)
    return [item.finding.code for item in plane.findings.observe(host)]


def test_tenants_are_told_before_when_it_begins_and_when_it_is_over(plane: ControlPlane) -> None:
    now = plane.world.clock.now()
    when = Planned(at=now + HOUR_S, length_s=2 * HOUR_S, reason="a fan is replaced, too")
    first = upgraded(plane, hosts=(T4_HOST,), when=when)
    assert (first.state, phases(first)) == ("running", {T4_HOST: "waiting"}), "it has not begun"
    assert [(change.change, change.details["reason"]) for change in told(plane, "red")] == [("planned", when.reason)]
    assert told(plane, "blue") == [], "none of its VMs is there"
    planned = plane.services.maintenances.planned().of(plane.services.vms.get("red", "train"))
    assert planned is not None
    assert (planned.reason, planned.opens_at, planned.ends_by) == (when.reason, now + HOUR_S, now + 3 * HOUR_S)
    plane.world.clock.sleep(HOUR_S)
    assert phases(go_on(plane)) == {T4_HOST: "done"}
    assert [change.change for change in told(plane, "red")] == ["planned", "began", "ended"]
    assert all(T4_HOST not in str(change.details) + change.name for change in told(plane, "red"))
    assert plane.services.vms.get("red", "train").state == "running"


def test_one_that_is_cancelled_before_it_began_is_told_and_leaves_all_as_it_was(plane: ControlPlane) -> None:
    when = Planned(at=plane.world.clock.now() + HOUR_S)
    declared = upgraded(plane, hosts=(T4_HOST,), when=when)
    assert plane.services.maintenances.cancel(declared.id).state == "cancelled"
    plane.world.clock.sleep(2 * HOUR_S)
    assert phases(go_on(plane)) == {T4_HOST: "waiting"}
    assert [change.change for change in told(plane, "red")] == ["planned", "cancelled"]
    with pytest.raises(Conflict, match="has ended: cancelled") as caught:
        plane.services.maintenances.cancel(declared.id)
    assert caught.value.code == "maintenance.over"


def test_one_that_is_cancelled_before_its_host_was_empty_is_told(plane: ControlPlane) -> None:
    declared = upgraded(plane, hosts=(T4_HOST,), policy="wait")
    assert phases(declared) == {T4_HOST: "emptying"}
    plane.services.maintenances.cancel(declared.id)
    assert phases(go_on(plane)) == {T4_HOST: "kept"}
    assert [change.change for change in told(plane, "red")] == ["planned", "began", "cancelled", "ended"]
    assert plane.services.maintenances.get(declared.id).ended_at is not None


def test_a_host_that_is_named_in_another_one_s_reason_is_none_of_its(plane: ControlPlane) -> None:
    plane.services.hosts.cordon(A100_HOST, None)
    upgraded(plane, hosts=(T4_HOST,), when=Planned(reason=A100_HOST))
    assert findings(plane, A100_HOST) == ["host.cordoned"]


def test_one_that_is_declared_for_later_hides_none_that_is_under_way(plane: ControlPlane) -> None:
    plane.services.maintenances.drain(T4_HOST, WantedDrain(policy="wait"))
    plane.world.clock.sleep(1)
    later = upgraded(plane, hosts=(T4_HOST,), when=Planned(at=plane.world.clock.now() + HOUR_S))
    assert phases(later) == {T4_HOST: "waiting"}
    assert findings(plane, T4_HOST) == [], "its cordon is the first one's"


def test_windows_apart_name_the_tenant_in_the_hint(plane: ControlPlane) -> None:
    plane.services.tenancy.policies.change("red", {"maintenance": "01:00-02:00"})
    with pytest.raises(Conflict) as caught:
        upgraded(plane, hosts=(T4_HOST,), window=parse_window("03:00-04:00"))
    assert "'vgpuctl policy set red maintenance=stop'" in (caught.value.hint or "")


def test_one_that_takes_longer_than_was_planned_is_a_finding_of_its_hosts_until_it_is_over(plane: ControlPlane) -> None:
    upgraded(plane, hosts=(T4_HOST,), policy="wait", when=Planned(length_s=HOUR_S))
    assert findings(plane, T4_HOST) == []
    plane.world.clock.sleep(HOUR_S + 1)
    late = go_on(plane)
    assert (late.overran, phases(late)) == (True, {T4_HOST: "emptying"})
    assert [change.change for change in told(plane, "red")] == ["planned", "began", "overran"]
    assert findings(plane, T4_HOST) == ["maintenance.overran"]
    assert findings(plane, A100_HOST) == [], "it is not one of its hosts"
    plane.services.vms.stop("red", "train")
    plane.engine.drain()
    assert go_on(plane).state == "done"
    assert findings(plane, T4_HOST) == []


def test_several_go_on_beside_each_other_and_each_is_known_by_its_id(plane: ControlPlane) -> None:
    done = upgraded(plane, hosts=(T4_HOST,))
    later = upgraded(plane, hosts=(A100_HOST,), when=Planned(at=plane.world.clock.now() + HOUR_S))
    listed = [(one.id, one.state) for one in plane.services.maintenances.list()]
    assert listed == [(later.id, "running"), (done.id, "done")]
    assert plane.services.maintenances.get(done.id).state == "done"
    with pytest.raises(NotFound) as caught:
        plane.services.maintenances.get("nothing")
    assert caught.value.code == "maintenance.unknown"


def halted_and_drained(plane: ControlPlane) -> tuple[str, str]:
    """Ids of an upgrade that was paused and of a drain that was declared after it, which goes on."""
    upgrade = plane.services.driver_upgrades.start(wanted(hosts=(T4_HOST,))).id
    plane.services.maintenances.pause()
    return upgrade, plane.services.maintenances.drain(A100_HOST, WantedDrain()).id


def test_without_an_id_the_one_that_it_can_be_done_to_is_meant(plane: ControlPlane) -> None:
    upgrade, drain = halted_and_drained(plane)
    assert plane.services.maintenances.resume().id == upgrade, "the drain, which is younger, goes on"
    with pytest.raises(Conflict, match=r"no maintenance is paused or halted: the drain .* is running") as caught:
        plane.services.maintenances.resume()
    assert caught.value.code == "maintenance.none_such"
    plane.services.maintenances.pause(upgrade)
    plane.services.maintenances.cancel(drain)
    assert plane.services.maintenances.cancel().id == upgrade, "the drain, which is younger, has ended"


@pytest.mark.parametrize("change", ["pause", "cancel"])
def test_without_an_id_none_is_taken_for_another_that_could_be_meant(plane: ControlPlane, change: str) -> None:
    upgrade, drain = halted_and_drained(plane)
    plane.services.maintenances.resume()
    with pytest.raises(InvalidInput) as caught:
        getattr(plane.services.maintenances, change)()
    assert (caught.value.code, "upgrade" in caught.value.message) == ("maintenance.ambiguous", True)
    assert {plane.services.maintenances.get(each).state for each in (upgrade, drain)} == {"running"}


def test_an_id_may_be_given_by_how_it_begins(plane: ControlPlane) -> None:
    upgrade, drain = halted_and_drained(plane)
    alone = next(upgrade[:digits] for digits in range(1, 37) if not drain.startswith(upgrade[:digits]))
    assert plane.services.maintenances.get(alone.upper()).id == upgrade
    assert plane.services.maintenances.resume(alone).state == "running"
    for wrong in ("", "%", "newer"):
        with pytest.raises(NotFound):
            plane.services.maintenances.get(wrong)
    if alone[:-1]:
        with pytest.raises(InvalidInput) as caught:
            plane.services.maintenances.get(alone[:-1])
        assert caught.value.code == "maintenance.ambiguous"


def test_one_cannot_have_begun_before_it_was_declared(plane: ControlPlane) -> None:
    with pytest.raises(InvalidInput) as caught:
        plane.services.driver_upgrades.start(wanted(when=Planned(at=plane.world.clock.now() - 1)))
    assert caught.value.code == "maintenance.past"
    assert plane.services.maintenances.list() == ()


@pytest.mark.parametrize("policy", ["move", "stop"])
def test_a_drained_host_that_dies_can_be_evacuated(plane: ControlPlane, policy: DrainPolicy) -> None:
    """Nobody could have it serve again, or end its drain, and its VMs were to be had by nobody."""
    if policy == "move":
        plane.services.vms.stop("red", "train")
        plane.engine.drain()
    drain = plane.services.maintenances.drain(T4_HOST, WantedDrain(policy=policy))
    assert phases(go_on(plane)) == {T4_HOST: "empty"}
    with pytest.raises(Conflict) as refused:
        plane.services.maintenances.cancel(drain.id)
    assert refused.value.code == "maintenance.empty"
    dies(plane, T4_HOST)
    evacuation = WantedEvacuation(confirm=T4_HOST, fence="hand")
    with pytest.raises(Conflict) as refused:
        plane.services.maintenances.evacuate(T4_HOST, evacuation)
    assert f"'vgpuctl maintenance cancel {drain.id}' ends it" in str(refused.value.hint)
    plane.services.maintenances.cancel(drain.id)
    go_on(plane)
    plane.services.maintenances.evacuate(T4_HOST, evacuation)
    assert phases(go_on(plane)) == {T4_HOST: "empty"}
    assert plane.services.vms.get("red", "train").state == "stopped", "its dead host is not asked to start it"


def test_what_works_on_a_vm_of_a_dead_host_is_named_and_can_be_given_up(plane: ControlPlane) -> None:
    dies(plane, T4_HOST)
    stop = str(plane.services.vms.stop("red", "train").operation)
    plane.engine.drain()
    plane.services.maintenances.evacuate(T4_HOST, WantedEvacuation(confirm=T4_HOST, fence="hand"))
    its = go_on(plane)
    assert phases(its) == {T4_HOST: "emptying"}
    progress = plane.services.maintenances.now(its).progress[T4_HOST]
    assert progress == f"1 VM on it: red/train is stopping (operation {stop} works on it)"
    plane.services.operations.abandon(stop)
    assert phases(go_on(plane)) == {T4_HOST: "empty"}


def test_a_host_whose_evacuation_does_not_end_counts_for_a_day_as_well(plane: ControlPlane) -> None:
    plane.add_host(L40S_HOST)
    fencing(plane).known |= {T4_HOST, A100_HOST}
    dead = DeadHosts(store=plane.store, maintenances=plane.services.maintenances, after_s=600.0, at_most=1)
    dies(plane, T4_HOST)
    plane.services.vms.stop("red", "train")
    plane.engine.drain()
    for host in (T4_HOST, A100_HOST):
        plane.observer.observe(A100_HOST)
        dies(plane, host)
        plane.world.clock.sleep(1500)
        dead.round()
        go_on(plane)
    assert [phases(its) for its in plane.services.maintenances.list()] == [{T4_HOST: "emptying"}]
