# SPDX-License-Identifier: Apache-2.0
"""VMs move together so that GPUs get empty: what is planned is what is done, and what was gained is counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.errors import Conflict, NoCapacity
from orchestrator.core.event import EventFilter
from orchestrator.core.maintenance.maintenance import Maintenance, Planned
from orchestrator.services.maintenance.defragmenting import WantedDefragmentation
from orchestrator.services.maintenance.maintenances import WantedDrain
from orchestrator.services.vms.capacity import CapacityService
from tests.fakes.control_plane import L40S_HOST, ControlPlane, control_plane
from tests.fakes.recount import miscounted
from tests.operations.moves import MIGRATABLE, OTHER, hosts, small_vm_on_each, where
from tests.operations.test_driver_upgrades import go_on, keeper

WHOLE = "l40s-48q"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A VM on a GPU of each of two hosts, of which one would do for both."""
    made = control_plane(tmp_path)
    hosts(made)
    small_vm_on_each(made)
    yield made
    with made.store.read() as tx:
        assert list(miscounted(tx)) == []
    made.store.close()


def declared(plane: ControlPlane, **how: Any) -> Maintenance:
    return plane.services.defragmentation.declare(replace(WantedDefragmentation(), **how))


def fit(plane: ControlPlane, profile: str) -> int:
    return plane.services.capacity.count([profile])[profile]


def test_a_plan_names_moves_and_gain_and_changes_nothing(plane: ControlPlane) -> None:
    before = where(plane)
    plan = plane.services.defragmentation.plan(WantedDefragmentation())
    (move,) = plan.moves
    assert (plan.gpus, move.source != move.target, move.gpu) == (1, True, move.gpu)
    gains = {gain.profile: (gain.now, gain.planned) for gain in plan.gains}
    assert gains, plan
    assert gains[WHOLE] == (fit(plane, WHOLE), fit(plane, WHOLE) + 1)
    assert plane.services.defragmentation.plan(WantedDefragmentation()) == plan, "the search leaves no trace"
    assert (where(plane), plane.engine.waiting) == (before, [])


def test_what_was_planned_is_done_while_vms_run_and_what_fits_then_is_measured(plane: ControlPlane) -> None:
    begun = declared(plane)
    (move,) = begun.moves
    ended = go_on(plane)
    assert ended.state == "done"
    assert [(turn.host, turn.phase) for turn in ended.hosts] == [(move.source, "done")]
    assert [moved.state for moved in ended.moves] == ["done"]
    assert {host for host, _ in where(plane).values()} == {move.target}
    assert {state for _, state in where(plane).values()} == {"running"}
    assert {gain.profile: gain.measured for gain in ended.gains} == {gain.profile: gain.planned for gain in begun.gains}
    with plane.store.read() as tx:
        moved = tx.vms.find_id(move.vm)
        kinds = {operation.kind for operation in tx.operations.list() if "move" in operation.kind}
    assert moved is not None
    assert ([device.gpu for device in moved.devices], kinds) == ([move.gpu], {"move_running_vm"})
    assert not any(plane.services.hosts.get(host).host.cordoned for host in (L40S_HOST, OTHER))


def test_nothing_is_declared_where_nothing_is_gained(plane: ControlPlane) -> None:
    declared(plane)
    go_on(plane)
    with pytest.raises(Conflict) as refused:
        declared(plane)
    assert refused.value.code == "defragment.nothing_to_do"


def test_a_site_has_one_balancer_at_a_time(plane: ControlPlane) -> None:
    later = plane.world.clock.now() + 3600
    first = declared(plane, when=Planned(at=later))
    with pytest.raises(Conflict) as refused:
        declared(plane)
    assert (refused.value.code, first.id in str(refused.value.hint)) == ("defragment.active", True)
    plane.services.maintenances.cancel(first.id)
    assert declared(plane).moves


def without_live_moves(plane: ControlPlane) -> None:
    with plane.store.begin() as tx:
        tx.offerings.put(replace(MIGRATABLE, migratable=False))


@pytest.mark.parametrize("policy", ["stop", "wait"])
def test_vms_are_shut_down_for_it_only_where_somebody_said_so_and_their_tenant_lets_them(
    plane: ControlPlane, policy: str
) -> None:
    without_live_moves(plane)
    plane.services.tenancy.policies.change("default", {"maintenance": policy})
    assert plane.services.defragmentation.plan(WantedDefragmentation()).moves == ()
    moves = plane.services.defragmentation.plan(WantedDefragmentation(cold=True)).moves
    assert len(moves) == (policy == "stop")
    if moves:
        declared(plane, cold=True)
        assert go_on(plane).state == "done"
        with plane.store.read() as tx:
            assert "move_vm_cold" in {operation.kind for operation in tx.operations.list()}


def test_a_vm_whose_place_was_taken_meanwhile_stays_and_says_why(plane: ControlPlane) -> None:
    begun = declared(plane, when=Planned(at=plane.world.clock.now() + 3600))
    (move,) = begun.moves
    plane.services.hosts.cordon(move.target, None)
    plane.world.clock.sleep(3601)
    before = where(plane)
    ended = go_on(plane)
    assert (ended.state, ended.hosts[0].phase, ended.moves[0].state) == ("done", "kept", "failed")
    assert f"VM {move.name} stays" in ended.hosts[0].why
    assert where(plane) == before


def test_nothing_more_begins_once_it_is_cancelled_or_paused(plane: ControlPlane) -> None:
    begun = declared(plane, when=Planned(at=plane.world.clock.now() + 3600))
    plane.services.maintenances.pause()
    plane.world.clock.sleep(3601)
    before = where(plane)
    go_on(plane)
    assert where(plane) == before
    plane.services.maintenances.cancel()
    assert (go_on(plane).state, where(plane)) == ("cancelled", before)
    assert begun.id == plane.services.maintenances.get().id


def test_the_tenant_whose_vm_moves_is_told_and_of_its_vms_that_one(plane: ControlPlane) -> None:
    begun = declared(plane, when=Planned(at=plane.world.clock.now() + 3600, reason="room for whole GPUs"))
    planned = plane.services.maintenances.planned()
    found = {vm.spec.name: planned.of(vm) for vm in plane.services.vms.list(None)}
    moving = {name: (its.act, its.policy, its.reason) for name, its in found.items() if its is not None}
    assert moving == {begun.moves[0].name.partition("/")[2]: ("defragment", "live", "room for whole GPUs")}
    only = EventFilter(tenants=frozenset({"default"}), nouns=frozenset({"maintenance"}))
    with plane.store.begin() as tx:
        told = [event.change for event in tx.events.last(tx.events.newest(), only, most=9)]
    assert [(change.change, change.details["vms"]) for change in told] == [("planned", "1")]


def test_a_host_is_emptied_all_the_same_and_serves_again(plane: ControlPlane) -> None:
    begun = declared(plane)
    plane.services.maintenances.drain(begun.moves[0].target, WantedDrain())
    go_on(plane)
    with plane.store.read() as tx:
        drain = tx.maintenances.newest()
    assert [None if drain is None else drain.hosts[0].phase] == ["empty"]
    plane.services.hosts.uncordon(begun.moves[0].target)
    go_on(plane)
    with plane.store.read() as tx:
        assert not tx.maintenances.active()


def begins_later(plane: ControlPlane) -> Maintenance:
    return declared(plane, when=Planned(at=plane.world.clock.now() + 3600))


def held(plane: ControlPlane, begun: Maintenance) -> str:
    """It has begun, and its VM waits for the time that its user chose. Returns the VM's name."""
    name = begun.moves[0].name.partition("/")[2]
    plane.services.maintenances.choose("default", name, begun.starts_at + 7200)
    plane.world.clock.sleep(3601)
    assert go_on(plane).hosts[0].phase == "moving"
    return name


def test_a_host_that_is_being_emptied_stays_so_when_a_defragmentation_begins(plane: ControlPlane) -> None:
    begun = begins_later(plane)
    source, name = begun.hosts[0].host, begun.moves[0].name.partition("/")[2]
    plane.services.maintenances.drain(source, WantedDrain(policy="stop"))
    go_on(plane)
    plane.world.clock.sleep(3601)
    go_on(plane)
    ended = plane.services.maintenances.get(begun.id)
    assert (ended.state, ended.hosts[0].phase, ended.moves[0].state) == ("done", "kept", "left")
    assert ended.moves[0].why == f"the drain is under way on host {source}"
    plane.services.vms.start("default", name)
    plane.engine.drain()
    assert where(plane)[name] == (source, "stopped"), "somebody is at it"
    plane.services.hosts.uncordon(source)
    go_on(plane)
    assert where(plane)[name] == (source, "running")


def test_a_host_with_moves_of_a_paused_defragmentation_is_emptied(plane: ControlPlane) -> None:
    begun = begins_later(plane)
    name = held(plane, begun)
    plane.services.maintenances.pause(begun.id)
    drain = plane.services.maintenances.drain(begun.moves[0].source, WantedDrain(policy="stop"))
    go_on(plane)
    assert plane.services.maintenances.get(drain.id).hosts[0].phase == "empty"
    assert where(plane)[name][1] == "stopped"
    plane.services.maintenances.resume(begun.id)
    go_on(plane)
    assert plane.services.maintenances.get(begun.id).moves[0].state == "left"


def test_who_put_a_move_off_can_have_it_now_after_all(plane: ControlPlane) -> None:
    begun = begins_later(plane)
    name = held(plane, begun)
    plane.services.maintenances.choose("default", name, None)
    assert go_on(plane).moves[0].state == "done"


def test_a_vm_that_was_deleted_before_its_turn_has_not_moved(plane: ControlPlane) -> None:
    begun = begins_later(plane)
    plane.services.vms.delete("default", begun.moves[0].name.partition("/")[2])
    plane.engine.drain()
    plane.world.clock.sleep(3601)
    ended = go_on(plane)
    assert (ended.moves[0].state, ended.moves[0].why) == ("gone", "it is gone")
    assert (ended.state, ended.hosts[0].phase) == ("done", "done"), "its GPU is empty all the same"


def test_a_vm_that_something_works_on_moves_when_that_has_ended(plane: ControlPlane) -> None:
    begun = begins_later(plane)
    name = begun.moves[0].name.partition("/")[2]
    plane.world.clock.sleep(3601)
    plane.services.vms.stop("default", name)
    ended = go_on(plane)
    assert (ended.moves[0].state, where(plane)[name]) == ("done", (begun.moves[0].target, "stopped"))


@pytest.mark.parametrize(
    ("cold", "policy", "told"),
    [(False, "stop", "live"), (True, "stop", "stop"), (True, "wait", "live"), (True, "01:00-02:00", "01:00-02:00")],
)
def test_what_a_tenant_is_told_of_a_move_is_what_is_done(
    plane: ControlPlane, cold: bool, policy: str, told: str
) -> None:
    begun = declared(plane, when=Planned(at=plane.world.clock.now() + 3600), cold=cold)
    plane.services.tenancy.policies.change("default", {"maintenance": policy})
    name = begun.moves[0].name.partition("/")[2]

    def planned() -> tuple[str, float | None]:
        its = plane.services.maintenances.planned().of(plane.services.vms.get("default", name))
        assert its is not None
        return its.policy, its.opens_at

    assert planned() == (told, begun.starts_at)
    plane.services.maintenances.choose("default", name, begun.starts_at + 500)
    assert planned() == ("chosen" if cold else "live", begun.starts_at + 500)


def test_no_move_waits_in_one_that_was_cancelled_before_it_began(plane: ControlPlane) -> None:
    begins_later(plane)
    (move,) = plane.services.maintenances.cancel().moves
    assert (move.state, move.why) == ("left", "it was cancelled before")


def test_one_whose_round_fails_keeps_no_other_from_its_own(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    (move,) = declared(plane).moves
    keeper(plane).round()
    plane.engine.drain()

    def failing(*_: object) -> dict[str, int]:
        raise NoCapacity("pool.full", "what fits cannot be counted", hint="ask for less")

    monkeypatch.setattr(CapacityService, "count", failing)
    with pytest.raises(NoCapacity, match="cannot be counted"):  # of the round that it begins
        plane.services.maintenances.drain(move.target, WantedDrain(policy="stop"))
    plane.engine.drain()
    assert move.target not in {host for host, state in where(plane).values() if state == "running"}
