# SPDX-License-Identifier: Apache-2.0
"""A host is drained: where its VMs are then, whom it waits for, and how it serves again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.errors import Conflict, Fatal, InvalidInput
from orchestrator.core.event import EventFilter
from orchestrator.core.maintenance.maintenance import MAX_TRIES, HostPhase, Maintenance, Planned
from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.operations.runner import Runner
from orchestrator.services.drivers.upgrades import WantedUpgrade
from orchestrator.services.maintenance.maintenances import HAND_BACK_S, WantedDrain
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, create_vm
from tests.fakes.drivers import with_bundle
from tests.fakes.fake_host import Crash, no_fault
from tests.fakes.recount import miscounted
from tests.operations.moves import MIGRATABLE, OTHER, plane_of_hosts
from tests.operations.test_driver_upgrades import NEW, OLD, go_on, keeper

HOUR_S = 3600
NAMES = ("one", "two", "three")


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    made = plane_of_hosts(tmp_path)
    for name in NAMES:
        made.services.vms.create(
            replace(create_vm(name, profile=MIGRATABLE.name, start=name != "three"), host=L40S_HOST)
        )
    made.engine.drain()
    yield made
    with made.store.read() as tx:
        assert list(miscounted(tx)) == []
    made.store.close()


def drained(plane: ControlPlane, **how: Any) -> Maintenance:
    plane.services.maintenances.drain(L40S_HOST, replace(WantedDrain(), **how))
    return go_on(plane)


def phase(drain: Maintenance) -> HostPhase:
    return drain.host(L40S_HOST).phase


def vms(plane: ControlPlane) -> dict[str, tuple[str, str]]:
    return {vm.spec.name: (vm.host, vm.state) for vm in plane.services.vms.list(None)}


def is_cordoned(plane: ControlPlane) -> bool:
    return plane.services.hosts.get(L40S_HOST).host.cordoned


def test_its_vms_are_elsewhere_as_they_were_and_it_serves_again_when_somebody_says_so(plane: ControlPlane) -> None:
    assert phase(drained(plane)) == "empty"
    assert vms(plane) == {"one": (OTHER, "running"), "two": (OTHER, "running"), "three": (OTHER, "stopped")}
    assert is_cordoned(plane)
    plane.services.hosts.uncordon(L40S_HOST)
    ended = go_on(plane)
    assert (ended.state, phase(ended), is_cordoned(plane)) == ("done", "done", False)
    assert vms(plane)["one"] == (OTHER, "running"), "nobody asked for it to come back"


def test_no_more_of_its_vms_move_at_once_than_may(plane: ControlPlane) -> None:
    plane.services.maintenances.drain(L40S_HOST, WantedDrain(parallel=1))
    drain = plane.services.maintenances.get()
    while phase(drain) != "empty":
        at_work = [state for _, state in vms(plane).values() if state in {"stopping", "moving", "starting"}]
        assert len(at_work) <= 1
        assert plane.engine.waiting
        Runner(plane.world, plane.journal, DEFINITIONS).run(plane.engine.waiting.pop(0))
        keeper(plane).round()
        drain = plane.services.maintenances.get()
    assert {host for host, _ in vms(plane).values()} == {OTHER}


def test_a_vm_that_has_no_place_elsewhere_runs_on_and_is_named_and_leaves_once_there_is_one(
    plane: ControlPlane,
) -> None:
    plane.services.hosts.cordon(OTHER, None)
    waits = drained(plane)
    assert phase(waits) == "emptying"
    assert vms(plane) == {"one": (L40S_HOST, "running"), "two": (L40S_HOST, "running"), "three": (L40S_HOST, "stopped")}
    assert waits.host(L40S_HOST).why.count("stays: ") == 3
    plane.services.hosts.uncordon(OTHER)
    assert phase(go_on(plane)) == "empty"
    assert {host for host, _ in vms(plane).values()} == {OTHER}


def without_live_moves(plane: ControlPlane) -> None:
    """What the VMs are of is said not to move while it runs."""
    with plane.store.begin() as tx:
        tx.offerings.put(replace(MIGRATABLE, migratable=False))


@pytest.mark.parametrize("live", [True, False])
def test_vms_run_on_while_they_go_where_that_is_legal_and_are_stopped_for_it_elsewhere(
    plane: ControlPlane, *, live: bool
) -> None:
    if not live:
        without_live_moves(plane)
    assert phase(drained(plane)) == "empty"
    with plane.store.read() as tx:
        kinds = {operation.kind for operation in tx.operations.list()}
    assert ("move_running_vm" in kinds, "move_vm_cold" in kinds) == (live, not live)
    assert vms(plane)["one"] == (OTHER, "running")


def test_of_several_for_one_place_one_is_stopped_and_the_others_run_on_until_there_is_another(
    plane: ControlPlane,
) -> None:
    without_live_moves(plane)
    plane.services.vms.delete("default", "three")
    for name in ("x", "y", "z"):
        plane.services.vms.create(replace(create_vm(name, profile=MIGRATABLE.name), host=OTHER))
    plane.engine.drain()
    waits = drained(plane)
    assert phase(waits) == "emptying"
    assert sorted(vms(plane)[name] for name in ("one", "two")) == [(L40S_HOST, "running"), (OTHER, "running")]
    assert "stays: " in waits.host(L40S_HOST).why
    plane.services.vms.delete("default", "x")
    plane.engine.drain()
    assert phase(go_on(plane)) == "empty"
    assert [vms(plane)[name] for name in ("one", "two")] == [(OTHER, "running")] * 2


def test_a_vm_whose_move_fails_runs_on_where_it_was_and_is_stopped_three_times_at_most(plane: ControlPlane) -> None:
    without_live_moves(plane)
    plane.services.vms.delete("default", "two")
    plane.engine.drain()

    def strike(_number: int, moment: str, name: str) -> Fatal | None:
        return Fatal("disk.full", "no room") if (moment, name) == ("before", "copy_volume") else None

    plane.hosts.strike = strike
    assert phase(drained(plane)) == "emptying"
    assert vms(plane)["one"] == (L40S_HOST, "running")
    assert "VM default/one could not be moved in 3 tries" in plane.services.maintenances.get().host(L40S_HOST).why
    with plane.store.read() as tx:
        assert [operation.kind for operation in tx.operations.list()].count("move_vm_cold") == MAX_TRIES


def test_a_tenant_whose_users_stop_its_vms_is_waited_for(plane: ControlPlane) -> None:
    without_live_moves(plane)
    plane.services.tenancy.policies.change("default", {"maintenance": "wait"})
    waits = drained(plane)
    assert phase(waits) == "emptying"
    assert vms(plane)["three"] == (OTHER, "stopped"), "it does not run"
    awaited = plane.services.maintenances.now(waits).waits[L40S_HOST].tenants
    assert [(tenant.tenant, tenant.vms) for tenant in awaited] == [("default", 2)]
    for name in ("one", "two"):
        plane.services.vms.stop("default", name)
    plane.engine.drain()
    assert phase(go_on(plane)) == "empty"
    assert vms(plane)["one"] == (OTHER, "stopped")


def test_vms_that_are_stopped_for_it_start_again_in_their_places(plane: ControlPlane) -> None:
    assert phase(drained(plane, policy="stop")) == "empty"
    assert {state for _, state in vms(plane).values()} == {"stopped"}
    with pytest.raises(Conflict) as caught:
        plane.services.vms.start("default", "three")
    assert caught.value.code == "host.provisioning"
    plane.services.hosts.uncordon(L40S_HOST)
    assert go_on(plane).state == "done"
    assert vms(plane) == {"one": (L40S_HOST, "running"), "two": (L40S_HOST, "running"), "three": (L40S_HOST, "stopped")}
    assert not is_cordoned(plane)


def test_a_host_that_is_not_as_it_should_be_does_not_serve_again(plane: ControlPlane) -> None:
    drained(plane)
    with plane.store.begin() as tx:
        tx.hosts.update(replace(tx.hosts.get(L40S_HOST), state="unreachable", state_reason="no answer"))
    with pytest.raises(Conflict, match="cannot serve yet: no answer") as caught:
        plane.services.hosts.uncordon(L40S_HOST)
    assert caught.value.code == "host.not_healthy"
    assert phase(go_on(plane)) == "empty"


def test_one_that_is_cancelled_gives_the_host_back_with_the_vms_that_are_left(plane: ControlPlane) -> None:
    plane.services.hosts.cordon(OTHER, None)
    drained(plane)
    plane.services.maintenances.cancel()
    ended = go_on(plane)
    assert (ended.state, phase(ended), is_cordoned(plane)) == ("cancelled", "kept", False)
    assert vms(plane)["one"] == (L40S_HOST, "running")


def test_one_host_is_drained_once_and_an_upgrade_waits_for_it(plane: ControlPlane) -> None:
    with_bundle(plane, OLD)
    with_bundle(plane, NEW)
    drain = drained(plane)
    with pytest.raises(Conflict) as caught:
        plane.services.maintenances.drain(L40S_HOST, WantedDrain())
    assert caught.value.code == "host.busy"
    plane.services.driver_upgrades.start(WantedUpgrade(version=NEW, hosts=(L40S_HOST,)))
    assert phase(go_on(plane)) == "waiting"
    plane.services.hosts.uncordon(L40S_HOST)
    assert phase(go_on(plane)) == "done"
    assert plane.services.maintenances.get(drain.id).state == "done"


def test_a_controller_that_died_in_the_middle_is_followed_by_another_one(plane: ControlPlane) -> None:
    def strike(_number: int, moment: str, name: str) -> BaseException | None:
        return Crash() if (moment, name) == ("after", "DefineDomain") else None

    plane.services.maintenances.drain(L40S_HOST, WantedDrain())
    plane.hosts.strike = strike
    with pytest.raises(Crash):
        go_on(plane)
    plane.hosts.strike, plane.engine.waiting = no_fault, []
    with plane.store.read() as tx:
        unfinished = [operation.id for operation in tx.operations.list(unfinished=True)]
    for operation in unfinished:
        plane.engine.submit(operation)
    assert phase(go_on(plane)) == "empty"
    assert vms(plane) == {"one": (OTHER, "running"), "two": (OTHER, "running"), "three": (OTHER, "stopped")}


def test_a_vm_whose_user_chose_a_time_stays_until_then_and_the_others_leave(plane: ControlPlane) -> None:
    plane.services.maintenances.drain(L40S_HOST, WantedDrain(parallel=1))
    at = plane.world.clock.now() + HOUR_S
    plane.services.maintenances.choose("default", "two", at)
    waits = go_on(plane)
    assert (phase(waits), vms(plane)["one"], vms(plane)["two"]) == (
        "emptying",
        (OTHER, "running"),
        (L40S_HOST, "running"),
    )
    awaited = plane.services.maintenances.now(waits).waits[L40S_HOST].tenants
    assert [(tenant.vms, tenant.policy, tenant.opens_at) for tenant in awaited] == [(1, "chosen", at)]
    planned = plane.services.maintenances.planned().of(plane.services.vms.get("default", "two"))
    assert planned is not None
    assert (planned.policy, planned.opens_at) == ("chosen", at)
    plane.world.clock.sleep(HOUR_S + 1)
    assert (phase(go_on(plane)), vms(plane)["two"]) == ("empty", (OTHER, "running"))


@pytest.mark.parametrize("policy", ["move", "wait"])
def test_now_goes_before_a_policy_that_waits(plane: ControlPlane, policy: str) -> None:
    without_live_moves(plane)
    plane.services.tenancy.policies.change("default", {"maintenance": "wait"})
    assert phase(drained(plane, policy=policy)) == "emptying"
    for name in ("one", "two"):
        plane.services.maintenances.choose("default", name, None)
    assert phase(go_on(plane)) == "empty"


def test_what_is_too_late_or_over_or_not_planned_is_refused_and_changes_nothing(plane: ControlPlane) -> None:
    with pytest.raises(Conflict) as caught:
        plane.services.maintenances.choose("default", "one", None)
    assert caught.value.code == "maintenance.none"
    assert "'vgpuctl show-vm one --tenant default'" in (caught.value.hint or "")
    drain = drained(plane, policy="wait")
    for at, code in (
        (drain.starts_at - 1, "maintenance.past"),
        (drain.starts_at + HAND_BACK_S + 1, "maintenance.too_late"),
    ):
        with pytest.raises(InvalidInput) as refused:
            plane.services.maintenances.choose("default", "one", at)
        assert refused.value.code == code
    assert plane.services.maintenances.get().chosen == {}


def test_what_its_user_chose_holds_for_each_that_its_host_gets_and_the_first_is_shown(plane: ControlPlane) -> None:
    with_bundle(plane, OLD)
    with_bundle(plane, NEW)
    now, vm = plane.world.clock.now(), plane.services.vms.get("default", "one")
    upgrade = plane.services.driver_upgrades.start(
        WantedUpgrade(version=NEW, hosts=(L40S_HOST,), when=Planned(at=now + HOUR_S))
    )
    plane.world.clock.sleep(1)
    drain = plane.services.maintenances.drain(L40S_HOST, WantedDrain(when=Planned(at=now + 2 * HOUR_S)))
    first = plane.services.maintenances.planned().of(vm)
    assert first is not None
    assert (first.id, first.opens_at) == (upgrade.id, now + HOUR_S)
    with pytest.raises(InvalidInput, match="the host is needed before"):
        plane.services.maintenances.choose("default", "one", upgrade.starts_at + HAND_BACK_S + 1)
    chosen = now + 3 * HOUR_S
    plane.services.maintenances.choose("default", "one", chosen)
    for its in (upgrade, drain):
        assert plane.services.maintenances.get(its.id).chosen == {vm.id: chosen}
    assert plane.services.maintenances.planned().of(vm) == replace(first, policy="chosen", opens_at=chosen)


def test_who_uncordons_too_early_is_told_what_ends_the_drain(plane: ControlPlane) -> None:
    plane.services.hosts.cordon(OTHER, None)
    drain = drained(plane)
    with pytest.raises(Conflict) as early:
        plane.services.hosts.uncordon(L40S_HOST)
    assert f"'vgpuctl maintenance cancel {drain.id}' ends it" in (early.value.hint or "")


def test_a_tenant_whose_vms_have_left_is_told_that_it_ended(plane: ControlPlane) -> None:
    drained(plane)
    plane.services.hosts.uncordon(L40S_HOST)
    assert go_on(plane).state == "done"
    with plane.store.begin() as tx:
        only = EventFilter(tenants=frozenset({"default"}), nouns=frozenset({"maintenance"}))
        told = [event.change for event in tx.events.last(tx.events.newest(), only, most=100)]
    assert {change.change: change.details["vms"] for change in told} == {"planned": "3", "began": "3", "ended": "0"}


def test_what_an_operator_has_decided_over_all_policies_stays(plane: ControlPlane) -> None:
    plane.services.maintenances.drain(L40S_HOST, WantedDrain(policy="stop"))
    with pytest.raises(Conflict) as caught:
        plane.services.maintenances.choose("default", "one", plane.world.clock.now() + HOUR_S)
    assert caught.value.code == "maintenance.decided"


def test_hosts_under_another_maintenance_keep_no_host_of_this_one_waiting(plane: ControlPlane) -> None:
    plane.add_host(T4_HOST)
    first = drained(plane)
    assert phase(first) == "empty"
    with_bundle(plane, OLD)
    with_bundle(plane, NEW)
    upgrade = plane.services.driver_upgrades.start(WantedUpgrade(version=NEW, hosts=(T4_HOST,), max_unavailable=1))
    assert go_on(plane).state == "done"
    plane.services.maintenances.drain(T4_HOST, WantedDrain())
    assert go_on(plane).host(T4_HOST).phase == "empty"
    assert plane.services.maintenances.get(upgrade.id).host(T4_HOST).phase == "done"


@pytest.mark.parametrize("given_up", [False, True])
def test_the_drain_of_a_host_that_is_removed_or_given_up_is_over(plane: ControlPlane, *, given_up: bool) -> None:
    for name in NAMES:
        plane.services.vms.delete("default", name)
    plane.engine.drain()
    drain = drained(plane)
    if given_up:
        plane.machine(L40S_HOST).answers = False
        plane.observer.observe(L40S_HOST)
        plane.services.hosts.forget(L40S_HOST, confirm=L40S_HOST)
    else:
        plane.services.hosts.remove(L40S_HOST)
        plane.engine.drain()
    ended = go_on(plane)
    assert (ended.state, phase(ended)) == ("done", "failed" if given_up else "done")
    if not given_up:
        plane.add_host(L40S_HOST)
        assert phase(drained(plane)) == "empty"
        assert plane.services.maintenances.get(drain.id).state == "done"


def test_one_whose_host_is_empty_is_not_cancelled_round_the_gate(plane: ControlPlane) -> None:
    drain = drained(plane)
    with pytest.raises(Conflict) as caught:
        plane.services.maintenances.cancel()
    assert caught.value.code == "maintenance.empty"
    assert caught.value.hint == f"'vgpuctl host uncordon {L40S_HOST}' ends it"
    assert go_on(plane) == drain
    assert is_cordoned(plane)
    plane.services.hosts.uncordon(L40S_HOST)
    assert go_on(plane).state == "done"


def test_a_vm_that_is_stuck_is_named_and_the_others_leave(plane: ControlPlane) -> None:
    one = plane.services.vms.get("default", "one")
    with plane.store.begin() as tx:
        tx.vms.update(replace(one, state="stuck"))
    waits = drained(plane, parallel=1)
    assert phase(waits) == "emptying"
    assert waits.host(L40S_HOST).why == "VM default/one is stuck"
    assert [vms(plane)[name] for name in ("two", "three")] == [(OTHER, "running"), (OTHER, "stopped")]
    with plane.store.begin() as tx:
        tx.vms.update(one)
    ended = go_on(plane)
    assert (phase(ended), ended.host(L40S_HOST).why) == ("empty", "")


def test_a_vm_that_its_user_restarts_takes_no_turn_of_the_others(plane: ControlPlane) -> None:
    plane.services.vms.restart("default", "one")
    plane.services.maintenances.drain(L40S_HOST, WantedDrain(parallel=1))
    keeper(plane).round()
    assert vms(plane)["two"] == (L40S_HOST, "moving") or vms(plane)["three"] == (L40S_HOST, "moving")
    assert phase(go_on(plane)) == "empty"


def test_why_a_host_is_not_emptied_yet_is_told(plane: ControlPlane) -> None:
    with plane.store.begin() as tx:
        host = tx.hosts.get(L40S_HOST)
        tx.hosts.update(replace(host, state="unreachable", state_reason="no answer"))
    waits = drained(plane)
    assert (phase(waits), waits.host(L40S_HOST).why) == ("waiting", "the host is unreachable: no answer")
    with plane.store.begin() as tx:
        tx.hosts.update(host)
    ended = go_on(plane)
    assert (phase(ended), ended.host(L40S_HOST).why) == ("empty", "")
