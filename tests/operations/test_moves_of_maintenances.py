# SPDX-License-Identifier: Apache-2.0
"""VMs that move for a maintenance: who begins it, how often it is tried, and whom an upgrade still stops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import Fatal
from orchestrator.core.maintenance.maintenance import MAX_TRIES, Maintenance
from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.operations.runner import Runner
from orchestrator.services.drivers.upgrades import WantedUpgrade
from orchestrator.services.maintenance.maintenances import WantedDrain
from orchestrator.services.messages import MoveVm, Started
from orchestrator.services.vms.moving import VmMoves
from tests.fakes.control_plane import L40S_HOST, ControlPlane, create_vm, plane_with
from tests.fakes.drivers import with_bundle
from tests.fakes.fake_host import Crash, no_fault
from tests.fakes.fake_machine import FakeMachine, l40s
from tests.operations.moves import MIGRATABLE, OTHER
from tests.operations.test_driver_upgrades import NEW, OLD, go_on, keeper

THIRD = "l40s-3"
HOSTS = (L40S_HOST, OTHER, THIRD)
MIB = 1024**2


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """Two VMs that may move while they run on each of three hosts, whose drivers say what goes where."""
    with plane_with(tmp_path) as made:
        made.hosts.compares = True
        with made.store.begin() as tx:
            tx.offerings.put(MIGRATABLE)
        for number, host in enumerate(HOSTS):
            gpus = [l40s(f"0000:8{gpu}:00.0") for gpu in range(1, 5)]
            made.hosts.machines[f"{host}.test"] = FakeMachine(machine_id=f"m{number}", gpus=gpus)
            made.add_host(host)
            for name in ("a", "b"):
                wish = create_vm(f"{name}{number}", profile=MIGRATABLE.name)
                made.services.vms.create(replace(wish, host=host))
        made.engine.drain()
        observe(made)
        yield made


def observe(plane: ControlPlane) -> None:
    for host in HOSTS:
        plane.observer.observe(host)


def kinds(plane: ControlPlane) -> list[str]:
    """Of all operations, the newest first."""
    with plane.store.read() as tx:
        return [operation.kind for operation in tx.operations.list(limit=200)]


def on(plane: ControlPlane, host: str) -> dict[str, str]:
    return {vm.spec.name: vm.state for vm in plane.services.vms.list(None) if vm.host == host}


def upgraded(plane: ControlPlane, *hosts: str) -> Maintenance:
    for version in (OLD, NEW):
        with_bundle(plane, version)
    plane.services.driver_upgrades.start(WantedUpgrade(version=NEW, hosts=hosts, max_unavailable=1))
    for _ in HOSTS:
        go_on(plane)
        observe(plane)  # what their drivers say of VMs that have just come
    return go_on(plane)


def not_migratable(plane: ControlPlane) -> None:
    with plane.store.begin() as tx:
        tx.offerings.put(replace(MIGRATABLE, migratable=False))


def test_an_upgrade_of_three_hosts_stops_no_vm_that_may_go_on_elsewhere(plane: ControlPlane) -> None:
    assert upgraded(plane).state == "done"
    assert {plane.machine(host).driver_version for host in HOSTS} == {NEW}
    assert [vm.state for vm in plane.services.vms.list(None)] == ["running"] * 6
    assert {"stop_vm", "start_vm", "move_vm_cold"}.isdisjoint(kinds(plane))
    assert "move_running_vm" in kinds(plane)
    assert not any(plane.services.hosts.get(host).host.cordoned for host in HOSTS)


def test_vms_that_may_not_are_stopped_for_it_and_start_again_where_they_were(plane: ControlPlane) -> None:
    not_migratable(plane)
    assert upgraded(plane, L40S_HOST).state == "done"
    assert (kinds(plane).count("stop_vm"), "move_running_vm" in kinds(plane)) == (2, False)
    assert on(plane, L40S_HOST) == {"a0": "running", "b0": "running"}


def test_without_a_place_elsewhere_they_are_stopped_too(plane: ControlPlane) -> None:
    for host in (OTHER, THIRD):
        plane.services.hosts.cordon(host, None)
    assert upgraded(plane, L40S_HOST).state == "done"
    assert (kinds(plane).count("stop_vm"), on(plane, L40S_HOST)) == (2, {"a0": "running", "b0": "running"})


def test_one_whose_moves_fail_is_stopped_after_three(plane: ControlPlane) -> None:
    def strike(_number: int, moment: str, name: str) -> Fatal | None:
        return Fatal("vm.not_moved", "QEMU gave up") if (moment, name) == ("before", "move_vm") else None

    plane.hosts.strike = strike
    assert upgraded(plane, L40S_HOST).state == "done"
    assert (kinds(plane).count("move_running_vm"), kinds(plane).count("stop_vm")) == (2 * MAX_TRIES, 2)
    assert on(plane, L40S_HOST) == {"a0": "running", "b0": "running"}


def test_no_more_than_four_move_at_once_and_none_is_stopped_meanwhile(plane: ControlPlane) -> None:
    for name in ("c", "d", "e"):
        plane.services.vms.create(replace(create_vm(name, profile=MIGRATABLE.name), host=L40S_HOST))
    plane.engine.drain()
    observe(plane)
    for version in (OLD, NEW):
        with_bundle(plane, version)
    plane.services.driver_upgrades.start(WantedUpgrade(version=NEW, hosts=(L40S_HOST,)))
    keeper(plane).round()
    assert sorted(on(plane, L40S_HOST).values()) == ["moving"] * 4 + ["running"]
    assert "0 of 5 VMs are stopped" not in plane.services.maintenances.now(plane.services.maintenances.get()).progress
    assert go_on(plane).state == "done"
    assert "stop_vm" not in kinds(plane)


def test_who_asks_for_something_does_not_wait_until_vms_have_places(plane: ControlPlane) -> None:
    its = keeper(plane)
    replace(plane.services.maintenances, advance=its.advance).drain(L40S_HOST, WantedDrain())
    assert its.advance(), "a round has them move"
    assert on(plane, L40S_HOST) == {"a0": "running", "b0": "running"}
    its.round()
    assert on(plane, L40S_HOST) == {"a0": "moving", "b0": "moving"}


def test_a_vm_that_was_refused_is_left_alone_for_longer_each_time(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    clock, move = plane.world.clock, VmMoves.move

    def counted(its: VmMoves, request: MoveVm) -> Started:
        if request.name == "a0" and not request.cold:
            asked.append(clock.now())
        return move(its, request)

    for host in (OTHER, THIRD):
        plane.services.hosts.cordon(host, None)
    monkeypatch.setattr(VmMoves, "move", counted)
    plane.services.maintenances.drain(L40S_HOST, WantedDrain())
    its, begun = keeper(plane), clock.now()
    asked.clear()
    for _ in range(160):
        its.round()
        its.round()
        clock.sleep(5)
    assert [round(at - begun) for at in asked] == [0, 30, 90, 210, 450, 750]
    plane.services.hosts.uncordon(OTHER)
    clock.sleep(300)
    its.round()
    assert on(plane, L40S_HOST)["a0"] == "moving"


def test_one_driver_is_asked_for_each_vm_that_moves_and_once_for_all_that_are_alike(plane: ControlPlane) -> None:
    plane.hosts.effects.clear()
    plane.services.maintenances.drain(L40S_HOST, WantedDrain())
    assert go_on(plane).host(L40S_HOST).phase == "empty"
    moved = on(plane, OTHER).keys() | on(plane, THIRD).keys()
    assert {"a0", "b0"} <= moved
    assert plane.hosts.effects.count("vgpu_compatibility") <= 2, "hosts that they went to"


def test_a_host_whose_driver_refuses_is_passed_over_for_one_that_does_not(plane: ControlPlane) -> None:
    plane.services.vms.create(replace(create_vm("far", profile=MIGRATABLE.name), host=L40S_HOST))
    plane.engine.drain()
    plane.machine(OTHER).driver_version = "595.1"
    observe(plane)
    with plane.store.begin() as tx:
        tx.hosts.update(replace(tx.hosts.get(THIRD), labels=()))
    for name in ("a0", "b0", "far"):
        plane.services.moving.move(MoveVm(name=name, tenant="default"))
        plane.engine.drain()
    assert {"a0", "b0", "far"} <= on(plane, THIRD).keys()


def test_moves_of_an_upgrade_are_held_back_as_it_says(plane: ControlPlane) -> None:
    for version in (OLD, NEW):
        with_bundle(plane, version)
    wanted = WantedUpgrade(version=NEW, hosts=(L40S_HOST,), parallel=1, max_bytes_per_s=100 * MIB)
    plane.services.driver_upgrades.start(wanted)
    keeper(plane).round()
    assert sorted(on(plane, L40S_HOST).values()) == ["moving", "running"]
    with plane.store.read() as tx:
        (move,) = [item for item in tx.operations.list() if item.kind == "move_running_vm"]
        assert tx.operations.get(move.id).inputs["max_bytes_per_s"] == 100 * MIB
    assert go_on(plane).state == "done"


def test_what_stays_when_moves_took_too_long_is_not_stopped_outside_of_its_tenants_window(plane: ControlPlane) -> None:
    plane.services.tenancy.policies.change("default", {"maintenance": "22:00-23:00"})
    plane.world.clock.sleep((22 * 3600 - plane.world.clock.now()) % 86400)
    for version in (OLD, NEW):
        with_bundle(plane, version)
    plane.services.driver_upgrades.start(WantedUpgrade(version=NEW, hosts=(L40S_HOST,)))
    keeper(plane).round()
    for host in (OTHER, THIRD):
        plane.services.hosts.cordon(host, None)
    plane.hosts.strike = lambda _, moment, name: (
        Fatal("vm.not_moved", "QEMU gave up") if (moment, name) == ("before", "move_vm") else None
    )
    plane.world.clock.sleep(2 * 3600)
    turn = go_on(plane).host(L40S_HOST)
    assert (turn.phase, "stop_vm" in kinds(plane)) == ("emptying", False)
    assert "may not be stopped any more" in turn.why
    plane.world.clock.sleep(22.5 * 3600)
    assert (go_on(plane).state, kinds(plane).count("stop_vm")) == ("done", 2)


def test_moves_of_a_drain_are_held_back_as_it_says(plane: ControlPlane) -> None:
    plane.services.maintenances.drain(L40S_HOST, WantedDrain(max_bytes_per_s=20 * MIB))
    keeper(plane).round()
    with plane.store.read() as tx:
        moves = [tx.operations.get(operation) for operation in plane.engine.waiting]
    assert [job.inputs["max_bytes_per_s"] for job in moves] == [20 * MIB] * 2


def test_sixteen_vms_leave_and_a_controller_that_dies_is_followed_by_another(plane: ControlPlane) -> None:
    for number in range(14):
        plane.services.vms.create(replace(create_vm(f"more{number}", profile=MIGRATABLE.name), host=L40S_HOST))
    plane.engine.drain()
    plane.services.maintenances.drain(L40S_HOST, WantedDrain(parallel=3))
    runner = Runner(plane.world, plane.journal, DEFINITIONS)
    for _ in range(40):
        keeper(plane).round()  # another controller's each time: nothing is remembered but what is stored
        plane.engine.waiting, due = [], plane.engine.waiting
        with plane.store.read() as tx:
            unfinished = [operation.id for operation in tx.operations.list(unfinished=True)]
        assert set(due) <= set(unfinished)
        assert len(unfinished) <= 3
        if not unfinished:
            break
        runner.run(unfinished[0])
    assert plane.services.maintenances.get().host(L40S_HOST).phase == "empty"
    assert on(plane, L40S_HOST) == {}
    assert [vm.state for vm in plane.services.vms.list(None)] == ["running"] * 20


@pytest.mark.parametrize("act", ["drain", "upgrade"])
def test_a_vm_that_got_stuck_when_it_had_left_is_named(plane: ControlPlane, act: str) -> None:
    """The place that it held there keeps the host from being empty."""
    plane.hosts.strike = lambda _, moment, name: (
        Fatal("vm.undefine_failed", "libvirt refuses") if (moment, name) == ("before", "UndefineDomain") else None
    )
    if act == "drain":
        plane.services.maintenances.drain(L40S_HOST, WantedDrain())
    turn = (go_on(plane) if act == "drain" else upgraded(plane, L40S_HOST)).host(L40S_HOST)
    assert turn.phase == ("emptying" if act == "drain" else "kept")
    assert all(f"default/{name}" in turn.why for name in ("a0", "b0"))
    assert (turn.why.endswith("is stuck"), on(plane, L40S_HOST)) == (True, {})


def test_a_move_whose_source_is_being_cleared_counts_once(plane: ControlPlane) -> None:
    plane.services.vms.create(replace(create_vm("c0", profile=MIGRATABLE.name), host=L40S_HOST))
    plane.engine.drain()
    plane.services.maintenances.drain(L40S_HOST, WantedDrain(parallel=2))
    keeper(plane).round()
    cleared, over = plane.engine.waiting
    plane.hosts.strike = lambda _, moment, name: Crash() if (moment, name) == ("before", "DeleteSeed") else None
    with pytest.raises(Crash):
        Runner(plane.world, plane.journal, DEFINITIONS).run(cleared)
    plane.hosts.strike = no_fault
    Runner(plane.world, plane.journal, DEFINITIONS).run(over)
    assert sorted(on(plane, L40S_HOST).values()) == ["running"]
    keeper(plane).round()
    assert sorted(on(plane, L40S_HOST).values()) == ["moving"]
    assert len([vm for vm in plane.services.vms.list(None) if vm.state == "moving"]) == 2
