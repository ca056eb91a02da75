# SPDX-License-Identifier: Apache-2.0
"""What users want of their VMs while a driver upgrade has them stopped: it is what holds afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict, Fatal, NotFound, Retryable, VgpuctlError
from orchestrator.core.maintenance.maintenance import Maintenance, is_over
from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.operations.runner import Runner
from orchestrator.services.retention import Retention
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, create_vm, plane_with
from tests.fakes.drivers import with_bundle
from tests.fakes.fake_host import no_fault
from tests.operations.test_driver_upgrades import NEW, OLD, go_on, keeper, phases, upgraded, wanted

HOSTS = (T4_HOST, L40S_HOST)
DAY_S = 86_400.0


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A VM that runs on the first of two hosts."""
    with plane_with(tmp_path, *HOSTS) as made:
        for version in (OLD, NEW):
            with_bundle(made, version)
        made.services.vms.create(create_vm())
        made.engine.drain()
        yield made


def state(plane: ControlPlane, name: str = "train") -> str:
    return plane.services.vms.get("default", name).state


def once(plane: ControlPlane, moment: str, name: str, act: Callable[[], object]) -> None:
    """``act``, at that moment of the first such action of a host."""
    left = [act]

    def strike(_number: int, *struck: str) -> None:
        if struck == (moment, name) and left:
            left.pop()()

    plane.hosts.strike = strike


def stop(plane: ControlPlane) -> None:
    plane.services.vms.stop("default", "train")


def start(plane: ControlPlane) -> None:
    plane.services.vms.start("default", "train")


@pytest.mark.parametrize(("moment", "name"), [("before", "StopDomain"), ("after", "provision")])
def test_a_vm_that_its_user_stops_during_the_upgrade_stays_stopped(plane: ControlPlane, moment: str, name: str) -> None:
    once(plane, moment, name, lambda: stop(plane))
    assert phases(upgraded(plane, hosts=(T4_HOST,))) == {T4_HOST: "done"}
    assert (state(plane), plane.services.vms.get("default", "train").wanted) == ("stopped", "stopped")


def test_a_vm_whose_user_changes_his_mind_runs_again_when_its_host_has_the_driver(plane: ControlPlane) -> None:
    def act() -> None:
        stop(plane)
        assert plane.services.maintenances.planned().of(plane.services.vms.get("default", "train")) is None
        start(plane)
        vm = plane.services.vms.get("default", "train")
        assert (vm.state, plane.services.maintenances.planned().of(vm) is None) == ("stopped", False)

    once(plane, "after", "provision", act)
    assert phases(upgraded(plane, hosts=(T4_HOST,))) == {T4_HOST: "done"}
    assert state(plane) == "running"


def test_a_vm_that_its_user_deletes_while_it_is_started_again_makes_no_host_fail(plane: ControlPlane) -> None:
    def swapped() -> None:
        once(plane, "before", "StartDomain", lambda: plane.services.vms.delete("default", "train"))

    once(plane, "after", "provision", swapped)
    upgrade = upgraded(plane)
    assert (upgrade.state, phases(upgrade)) == ("done", {T4_HOST: "done", L40S_HOST: "done"})
    assert plane.services.vms.list(None) == ()


def test_a_vm_that_its_user_is_renaming_when_its_host_is_refilled_runs_again(plane: ControlPlane) -> None:
    plane.services.driver_upgrades.start(wanted(hosts=(T4_HOST,)))
    plane.engine.drain()
    keeper(plane).round()
    (swap,) = plane.engine.waiting
    Runner(plane.world, plane.journal, DEFINITIONS).run(swap)
    plane.services.vms.rename("default", "train", "renamed")
    keeper(plane).round()
    assert phases(plane.services.maintenances.get()) == {T4_HOST: "refilling"}
    assert phases(go_on(plane)) == {T4_HOST: "done"}
    assert state(plane, "renamed") == "running"


def test_a_guest_that_ends_while_its_host_is_emptied_runs_again_and_one_that_had_ended_before_does_not(
    plane: ControlPlane,
) -> None:
    plane.services.vms.create(create_vm("ended"))
    plane.engine.drain()
    machine, vms = plane.machine(T4_HOST), {vm.spec.name: vm for vm in plane.services.vms.list(None)}

    def power_off(name: str) -> None:
        machine.domains[vms[name].id] = (machine.domains[vms[name].id][0], False)
        plane.observer.observe(T4_HOST)

    power_off("ended")
    plane.services.driver_upgrades.start(wanted(hosts=(T4_HOST,)))
    power_off("train")
    assert phases(go_on(plane)) == {T4_HOST: "done"}
    assert (state(plane, "train"), state(plane, "ended")) == ("running", "stopped")
    assert machine.driver_version == NEW


@pytest.mark.parametrize("error", [Fatal("vm.start_failed", "QEMU ended"), Retryable("test.busy", "for a while")])
def test_a_start_that_fails_is_tried_again(plane: ControlPlane, error: VgpuctlError) -> None:
    failures = [error]

    def strike(_number: int, moment: str, name: str) -> VgpuctlError | None:
        return failures.pop() if (moment, name) == ("before", "StartDomain") and failures else None

    plane.hosts.strike = strike
    assert phases(upgraded(plane, hosts=(T4_HOST,))) == {T4_HOST: "done"}
    assert state(plane) == "running"


def never_starting(plane: ControlPlane) -> Maintenance:
    plane.hosts.strike = lambda _, moment, name: (
        Fatal("vm.start_failed", "QEMU ended") if (moment, name) == ("before", "StartDomain") else None
    )
    return upgraded(plane, hosts=(T4_HOST,))


def test_a_vm_that_does_not_start_makes_its_host_fail_by_name_and_is_found_and_repaired(plane: ControlPlane) -> None:
    upgrade = never_starting(plane)
    assert (phases(upgrade), upgrade.host(T4_HOST).why) == (
        {T4_HOST: "failed"}, "VM default/train did not start again",
    )  # fmt: skip
    plane.look(T4_HOST)
    found = {one.finding.code: one.finding for one in plane.findings.list(host=T4_HOST)}
    assert found["vm.not_running"].subject == "VM default/train"
    plane.hosts.strike = no_fault
    plane.findings.repair(host=T4_HOST)
    plane.engine.drain()
    assert state(plane) == "running"


def test_nothing_starts_a_vm_on_a_host_that_is_emptied_for_its_driver(plane: ControlPlane) -> None:
    machine, vm = plane.machine(T4_HOST), plane.services.vms.get("default", "train")
    machine.domains[vm.id] = (machine.domains[vm.id][0], False)
    plane.look(T4_HOST)
    assert "vm.not_running" in {one.finding.code for one in plane.findings.list(host=T4_HOST)}
    plane.services.driver_upgrades.start(wanted(hosts=(T4_HOST,), policy="wait"))
    assert plane.findings.repair(host=T4_HOST) == ()
    assert phases(go_on(plane)) == {T4_HOST: "done"}


def test_an_upgrade_whose_operations_are_forgotten_goes_on_and_can_be_ended(plane: ControlPlane) -> None:
    plane.services.vms.create(create_vm("short"))
    plane.engine.drain()
    plane.services.driver_upgrades.start(wanted(hosts=(T4_HOST,), policy="wait"))
    machine, vm = plane.machine(T4_HOST), plane.services.vms.get("default", "short")
    machine.domains[vm.id] = (machine.domains[vm.id][0], False)
    plane.observer.observe(T4_HOST)
    assert phases(go_on(plane)) == {T4_HOST: "emptying"}
    plane.services.vms.delete("default", "short")
    plane.engine.drain()
    plane.world.clock.sleep(100 * DAY_S)
    assert Retention(store=plane.store, clock=plane.world.clock, time=plane.time, days=30.0).round() > 0
    upgrade = go_on(plane)
    assert plane.services.maintenances.now(upgrade).progress == {}
    plane.services.maintenances.cancel()
    ended = go_on(plane)
    assert (ended.state, is_over(ended), phases(ended)) == ("cancelled", True, {T4_HOST: "kept"})
    assert not plane.services.hosts.get(T4_HOST).host.cordoned
    assert upgraded(plane, policy="stop").state == "done"


def test_a_swap_that_is_forgotten_is_judged_by_the_driver_that_the_host_has(plane: ControlPlane) -> None:
    plane.services.driver_upgrades.start(wanted(hosts=(T4_HOST,)))
    plane.engine.drain()
    keeper(plane).round()
    plane.engine.drain()
    assert phases(plane.services.maintenances.get()) == {T4_HOST: "swapping"}
    plane.world.clock.sleep(100 * DAY_S)
    plane.look(L40S_HOST)
    plane.services.vms.create(create_vm("later", profile="NVIDIA L40S-12Q"))
    plane.engine.drain()
    plane.observer.observe(T4_HOST)
    Retention(store=plane.store, clock=plane.world.clock, time=plane.time, days=30.0).round()
    upgrade = plane.services.maintenances.get()
    with pytest.raises(NotFound):
        plane.services.operations.get(str(upgrade.host(T4_HOST).swap))
    assert plane.services.maintenances.now(upgrade).progress == {}
    assert phases(go_on(plane)) == {T4_HOST: "done"}
    assert state(plane) == "running"


def lose(plane: ControlPlane, host: str) -> None:
    plane.machine(host).answers = False
    plane.observer.observe(host)


@pytest.mark.parametrize("forgotten_first", [True, False])
def test_an_upgrade_of_a_host_that_died_before_its_drivers_turn_can_be_ended_and_followed(
    plane: ControlPlane, forgotten_first: bool
) -> None:
    plane.services.driver_upgrades.start(wanted(hosts=(T4_HOST,), policy="wait"))
    assert phases(go_on(plane)) == {T4_HOST: "emptying"}
    lose(plane, T4_HOST)
    if forgotten_first:
        plane.services.hosts.forget(T4_HOST, confirm=T4_HOST)
        ended = go_on(plane)
        assert (ended.state, ended.host(T4_HOST).why) == ("done", "the host was given up")
    else:
        plane.services.maintenances.cancel()
        assert go_on(plane).host(T4_HOST).why == "it was cancelled before its host was empty"
        plane.services.hosts.forget(T4_HOST, confirm=T4_HOST)
    assert upgraded(plane, hosts=(L40S_HOST,)).state == "done"


def test_an_upgrade_of_a_host_that_died_before_its_vms_ran_again_can_be_ended(plane: ControlPlane) -> None:
    once(plane, "before", "StartDomain", lambda: lose(plane, T4_HOST))
    assert phases(upgraded(plane, hosts=(T4_HOST,))) == {T4_HOST: "refilling"}
    plane.services.maintenances.cancel()
    ended = go_on(plane)
    assert (is_over(ended), ended.host(T4_HOST).phase) == (True, "failed")
    assert f"host {T4_HOST} is unreachable; VM default/train did not start again" in ended.host(T4_HOST).why
    assert upgraded(plane, hosts=(L40S_HOST,)).state == "done"


def test_a_vm_that_is_restarted_is_not_said_to_stop(plane: ControlPlane) -> None:
    plane.services.vms.restart("default", "train")
    with pytest.raises(Conflict) as caught:
        stop(plane)
    assert caught.value.code == "vm.busy"
    plane.engine.drain()
    assert state(plane) == "running"


def test_a_vm_whose_stop_gets_stuck_half_way_makes_its_host_fail_with_its_old_driver(plane: ControlPlane) -> None:
    plane.hosts.strike = lambda _, moment, name: (
        Fatal("test.stubborn", "it does not go") if (moment, name) == ("before", "RemoveMdev") else None
    )
    upgrade = upgraded(plane, hosts=(T4_HOST,))
    assert phases(upgrade) == {T4_HOST: "failed"}
    assert upgrade.host(T4_HOST).why == "VM default/train did not start again; VM default/train is stuck"
    assert plane.machine(T4_HOST).driver_version == OLD


def test_a_host_that_was_rolled_back_or_cordoned_is_named_until_somebody_takes_it_up(plane: ControlPlane) -> None:
    failures = [Fatal("driver.dkms_failed", "DKMS could not build it")]
    plane.hosts.strike = lambda _, moment, name: (
        failures.pop() if (moment, name) == ("before", "provision") and failures else None
    )
    assert phases(upgraded(plane, hosts=(T4_HOST,))) == {T4_HOST: "rolled_back"}
    plane.services.hosts.cordon(L40S_HOST)

    def named(host: str) -> dict[str, str]:
        plane.look(host)
        return {one.finding.code: one.finding.observed for one in plane.findings.list(host=host)}

    assert "ended as rolled_back" in named(T4_HOST)["host.maintenance_failed"]
    assert "DKMS could not build it" in named(T4_HOST)["host.maintenance_failed"]
    assert named(L40S_HOST)["host.cordoned"].endswith("by server")
    for host in HOSTS:
        plane.services.hosts.uncordon(host)
        assert named(host) == {}
