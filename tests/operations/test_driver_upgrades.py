# SPDX-License-Identifier: Apache-2.0
"""A rolling upgrade over hosts in memory: what each ends as, what its VMs get back, and what stops it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.api.use_cases import keeper_of
from orchestrator.core.errors import Conflict, Fatal, InvalidInput, NotFound, VgpuctlError
from orchestrator.core.maintenance.maintenance import HostPhase, Maintenance, is_over
from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.operations.runner import Runner
from orchestrator.reconcile.maintenances import MaintenanceKeeper
from orchestrator.services.drivers.upgrades import WantedUpgrade
from tests.fakes.control_plane import A100_HOST, L40S_HOST, T4_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.drivers import with_bundle
from tests.fakes.fake_host import Crash, no_fault

OLD, NEW = "580.95.02", "580.105.06"
HOSTS = (A100_HOST, L40S_HOST, T4_HOST)
PROFILES = {T4_HOST: "GRID T4-2Q", L40S_HOST: "NVIDIA L40S-12Q", A100_HOST: "GRID A100D-1-20C"}


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    made = control_plane(tmp_path)
    for host in HOSTS:
        made.add_host(host)
    with_bundle(made, OLD)
    with_bundle(made, NEW)
    yield made
    made.store.close()


def wanted(**other: Any) -> WantedUpgrade:
    return replace(WantedUpgrade(version=NEW, max_unavailable=1), **other)


def keeper(plane: ControlPlane) -> MaintenanceKeeper:
    return keeper_of(plane.world, plane.engine, plane.services.moving)


def go_on(plane: ControlPlane) -> Maintenance:
    """Until nothing goes on by itself any more."""
    its = keeper(plane)
    for _ in range(100):
        its.round()
        if not plane.engine.waiting:
            break
        plane.engine.drain()
    return plane.services.maintenances.get()


def upgraded(plane: ControlPlane, **other: Any) -> Maintenance:
    plane.services.driver_upgrades.start(wanted(**other))
    return go_on(plane)


def phases(upgrade: Maintenance) -> dict[str, HostPhase]:
    return {one.host: one.phase for one in upgrade.hosts}


def with_vms(plane: ControlPlane) -> None:
    for host, profile in PROFILES.items():
        plane.services.vms.create(create_vm(f"on-{host}", profile=profile))
    plane.engine.drain()


def refusing(plane: ControlPlane, *hosts: str) -> None:
    """The new driver does not come up there; the old one does."""

    def strike(_number: int, moment: str, name: str) -> Fatal | None:
        for host in hosts:
            if (moment, name, plane.machine(host).driver_version) == ("after", "provision", NEW):
                return Fatal("driver.not_loaded", f"it does not load on {host}")
        return None

    plane.hosts.strike = strike


def test_all_hosts_get_the_driver_and_vms_run_again_with_the_devices_that_they_had(plane: ControlPlane) -> None:
    with_vms(plane)
    before = {vm.full_name: (vm.host, vm.devices) for vm in plane.services.vms.list(None)}
    upgrade = upgraded(plane)
    assert (upgrade.state, is_over(upgrade)) == ("done", True)
    assert set(phases(upgrade).values()) == {"done"}
    assert {plane.machine(host).driver_version for host in HOSTS} == {NEW}
    assert {vm.full_name: (vm.host, vm.devices) for vm in plane.services.vms.list(None)} == before
    assert {vm.state for vm in plane.services.vms.list(None)} == {"running"}
    assert not any(info.host.cordoned for info in plane.services.hosts.list())


def test_a_vm_that_was_stopped_stays_stopped(plane: ControlPlane) -> None:
    plane.services.vms.create(create_vm(start=False))
    plane.engine.drain()
    assert upgraded(plane).state == "done"
    assert plane.services.vms.get("default", "train").state == "stopped"


@pytest.mark.fault("F111")
def test_a_host_that_fails_goes_back_to_its_old_driver_with_its_vms_and_the_others_finish(plane: ControlPlane) -> None:
    with_vms(plane)
    refusing(plane, L40S_HOST)
    upgrade = upgraded(plane)
    assert phases(upgrade) == {A100_HOST: "done", L40S_HOST: "rolled_back", T4_HOST: "done"}
    assert upgrade.state == "done"
    assert "does not load" in upgrade.host(L40S_HOST).why
    assert plane.machine(L40S_HOST).driver_version == OLD
    assert {vm.state for vm in plane.services.vms.list(None)} == {"running"}
    assert plane.services.hosts.get(L40S_HOST).host.cordoned, "a person looks before new VMs are placed there"
    assert not plane.services.hosts.get(T4_HOST).host.cordoned


@pytest.mark.fault("F109", "F111", "F113")
@pytest.mark.parametrize(("moment", "name", "error"), [
    ("before", "provision", Fatal("driver.dkms_failed", "DKMS could not build the module")),
    ("before", "provision", Conflict("driver.module_busy", "module nvidia is in use by dcgm")),
    ("after", "provision", Fatal("driver.not_loaded", "module nvidia does not load")),
    ("after", "provision", Fatal("driver.version_differs", "the module that is loaded is 999.1.1")),
    ("after", "provision", Fatal("driver.fabric_manager_differs", "the fabric manager is another version")),
    ("before", "MakeVgpu", Fatal("vgpu.create_failed", "the driver makes no vGPU")),
], ids=lambda value: getattr(value, "code", None))  # fmt: skip
def test_each_way_a_bundle_fails_ends_with_the_old_driver_and_is_mended_by_the_next_run(
    plane: ControlPlane, moment: str, name: str, error: VgpuctlError
) -> None:
    plane.services.vms.create(create_vm())
    plane.engine.drain()
    before = plane.services.vms.get("default", "train")

    def strike(_number: int, *struck: str) -> VgpuctlError | None:
        swaps = plane.services.maintenances.get().host(T4_HOST).phase == "swapping"
        return failures.pop() if swaps and struck == (moment, name) and failures else None

    failures = [error]
    plane.hosts.strike = strike
    failed = upgraded(plane, hosts=(T4_HOST,), canary=0)
    assert (phases(failed), failed.host(T4_HOST).why) == ({T4_HOST: "rolled_back"}, error.message)
    assert plane.machine(T4_HOST).driver_version == OLD
    after = plane.services.vms.get("default", "train")
    assert (after.state, after.devices) == ("running", before.devices)
    assert plane.services.hosts.get(T4_HOST).host.cordoned
    plane.hosts.strike = no_fault
    assert phases(upgraded(plane, hosts=(T4_HOST,))) == {T4_HOST: "done"}
    assert not plane.services.hosts.get(T4_HOST).host.cordoned


@pytest.mark.fault("F120")
def test_a_bundle_that_was_changed_since_it_was_taken_reaches_no_host_and_the_vm_runs_on(
    plane: ControlPlane, tmp_path: Path
) -> None:
    plane.services.vms.create(create_vm())
    plane.engine.drain()
    (bundle,) = (one for one in plane.services.driver_bundles.list() if one.content.version == NEW)
    with (tmp_path / "driver-bundles" / bundle.sha256).open("ab") as file:
        file.write(b"more")
    plane.hosts.effects.clear()
    upgrade = upgraded(plane, hosts=(T4_HOST,))
    assert phases(upgrade) == {T4_HOST: "kept"}
    assert "provision" not in plane.hosts.effects
    assert plane.services.vms.get("default", "train").state == "running"
    assert not plane.services.hosts.get(T4_HOST).host.cordoned


@pytest.mark.fault("F114")
def test_it_halts_beyond_the_budget_and_a_person_lets_it_go_on(plane: ControlPlane) -> None:
    refusing(plane, A100_HOST, L40S_HOST)
    halted = upgraded(plane, canary=0, failure_budget=1)
    assert halted.state == "halted"
    assert phases(halted)[T4_HOST] == "waiting"
    assert plane.machine(T4_HOST).driver_version == OLD
    plane.services.maintenances.resume()
    assert phases(go_on(plane))[T4_HOST] == "done"


def test_a_canary_that_fails_stops_it_before_any_other_host(plane: ControlPlane) -> None:
    refusing(plane, A100_HOST)
    assert set(phases(upgraded(plane, failure_budget=3)).values()) == {"rolled_back", "waiting"}


@pytest.mark.fault("F116")
def test_a_host_that_a_person_had_cordoned_stays_cordoned(plane: ControlPlane) -> None:
    plane.services.hosts.cordon(T4_HOST)
    assert upgraded(plane).state == "done"
    assert [info.host.name for info in plane.services.hosts.list() if info.host.cordoned] == [T4_HOST]


def test_a_host_that_a_person_cordons_meanwhile_stays_cordoned(plane: ControlPlane) -> None:
    plane.services.driver_upgrades.start(wanted())
    keeper(plane).round()
    plane.services.hosts.cordon(A100_HOST)
    assert go_on(plane).state == "done"
    assert [info.host.name for info in plane.services.hosts.list() if info.host.cordoned] == [A100_HOST]


def test_nobody_places_vms_on_a_host_in_the_middle_of_its_upgrade(plane: ControlPlane) -> None:
    plane.services.driver_upgrades.start(wanted())
    keeper(plane).round()
    with pytest.raises(Conflict, match="is under way on host") as caught:
        plane.services.hosts.uncordon(A100_HOST)
    assert caught.value.code == "host.busy"
    assert plane.services.hosts.get(A100_HOST).host.cordoned
    plane.services.hosts.uncordon(T4_HOST)


def test_a_host_that_was_rolled_back_serves_again_after_an_upgrade_that_succeeds(plane: ControlPlane) -> None:
    refusing(plane, T4_HOST)
    assert phases(upgraded(plane, failure_budget=1))[T4_HOST] == "rolled_back"
    assert plane.services.hosts.get(T4_HOST).host.cordoned_for == f"the driver upgrade to {NEW}"
    plane.hosts.strike = no_fault
    assert phases(upgraded(plane))[T4_HOST] == "done"
    assert not plane.services.hosts.get(T4_HOST).host.cordoned


@pytest.mark.fault("F110")
def test_a_host_whose_vm_cannot_be_stopped_keeps_its_driver_and_counts_as_failed(plane: ControlPlane) -> None:
    with_vms(plane)
    plane.hosts.strike = lambda _, moment, name: (
        Fatal("test.stubborn", "it does not stop") if (moment, name) == ("before", "StopDomain") else None
    )
    upgrade = upgraded(plane)
    assert (upgrade.state, upgrade.host(A100_HOST).phase) == ("halted", "kept")
    assert {plane.machine(host).driver_version for host in HOSTS} == {OLD}


@pytest.mark.fault("F119")
def test_a_second_upgrade_is_refused_while_one_goes_on(plane: ControlPlane) -> None:
    plane.services.driver_upgrades.start(wanted())
    with pytest.raises(Conflict) as caught:
        plane.services.driver_upgrades.start(wanted(hosts=(T4_HOST,)))
    assert caught.value.code == "upgrade.active"
    plane.services.maintenances.pause()
    with pytest.raises(Conflict):
        plane.services.driver_upgrades.start(wanted())


@pytest.mark.fault("F118")
def test_an_upgrade_after_which_a_vm_could_not_run_is_refused_and_names_it(plane: ControlPlane) -> None:
    with_vms(plane)
    plane.services.images.set_guest_driver("guest", "550.54.14")
    with pytest.raises(Conflict) as caught:
        plane.services.driver_upgrades.start(wanted())
    assert caught.value.code == "upgrade.refused"
    assert {one.code for one in caught.value.reasons} == {"upgrade.guest_forbids"}
    assert "default/on-t4" in str(caught.value.reasons)
    assert "driver_matrix.csv" in caught.value.message
    assert not any(info.host.cordoned for info in plane.services.hosts.list())


@pytest.mark.parametrize("number", ["max_unavailable", "canary", "failure_budget"])
@pytest.mark.parametrize("value", [-1, 100_001, 10**25])
def test_a_number_of_hosts_that_nobody_has_is_refused_and_nothing_is_begun(
    plane: ControlPlane, number: str, value: int
) -> None:
    with pytest.raises(InvalidInput) as caught:
        plane.services.driver_upgrades.start(wanted(**{number: value}))
    assert caught.value.code == "upgrade.number_invalid"
    with pytest.raises(NotFound):
        plane.services.maintenances.get()


def test_a_site_without_hosts_has_nothing_to_upgrade(plane: ControlPlane) -> None:
    for host in HOSTS:
        plane.services.hosts.remove(host)
    plane.engine.drain()
    with pytest.raises(Conflict, match="there are no hosts yet") as caught:
        plane.services.driver_upgrades.plan(wanted())
    assert caught.value.code == "upgrade.nothing_to_do"


def test_hosts_that_cannot_come_back_or_are_away_are_refused_before_it_begins(plane: ControlPlane) -> None:
    plane.machine(T4_HOST).driver_version = "580.65.05"
    plane.observer.observe(T4_HOST)
    plane.machine(L40S_HOST).answers = False
    plane.observer.observe(L40S_HOST)
    with pytest.raises(Conflict) as caught:
        plane.services.driver_upgrades.plan(wanted())
    found = {one.subjects[0]: one.code for one in caught.value.reasons}
    assert found == {L40S_HOST: "upgrade.host_not_ready", T4_HOST: "upgrade.no_way_back"}
    assert plane.services.driver_upgrades.plan(wanted(hosts=(A100_HOST,))).hosts


def test_what_was_paused_begins_no_host_and_what_was_cancelled_never_does(plane: ControlPlane) -> None:
    plane.services.driver_upgrades.start(wanted())
    plane.services.maintenances.pause()
    assert set(phases(go_on(plane)).values()) == {"done", "waiting"}
    plane.services.maintenances.resume()
    keeper(plane).round()
    plane.services.maintenances.cancel()
    ended = go_on(plane)
    assert (ended.state, is_over(ended)) == ("cancelled", True)
    assert sorted(phases(ended).values()) == ["done", "done", "waiting"]
    with pytest.raises(Conflict) as caught:
        plane.services.maintenances.resume()
    assert caught.value.code == "maintenance.over"


def test_vms_are_waited_for_when_that_is_the_policy(plane: ControlPlane) -> None:
    with_vms(plane)
    waiting = upgraded(plane, policy="wait")
    assert (waiting.state, waiting.host(A100_HOST).phase) == ("running", "emptying")
    plane.services.vms.stop("default", f"on-{A100_HOST}")
    plane.engine.drain()
    assert go_on(plane).host(A100_HOST).phase == "done"
    assert plane.services.vms.get("default", f"on-{A100_HOST}").state == "stopped", "its user stopped it"


@pytest.mark.fault("F115")
@pytest.mark.parametrize("number", range(0, 24, 3))
def test_a_controller_that_dies_anywhere_is_followed_by_one_that_does_no_host_twice(
    plane: ControlPlane, number: int
) -> None:
    with_vms(plane)
    plane.hosts.effects.clear()
    plane.hosts.strike = lambda at, moment, _: Crash() if (at, moment) == (number, "after") else None
    plane.services.driver_upgrades.start(wanted())
    swaps: set[str | None] = set()
    for _ in range(200):
        try:
            keeper(plane).round()
            swaps |= {one.swap for one in plane.services.maintenances.get().hosts}
            if not plane.engine.waiting:
                break
            plane.engine.drain()
        except Crash:
            plane.hosts.strike = no_fault
            with plane.store.read() as tx:
                left = [one.id for one in tx.operations.list(unfinished=True)]
            for operation in reversed(left):
                Runner(plane.world, plane.journal, DEFINITIONS).run(operation)
    upgrade = plane.services.maintenances.get()
    assert (upgrade.state, set(phases(upgrade).values())) == ("done", {"done"})
    assert len(swaps - {None}) == len(HOSTS)
    assert {vm.state for vm in plane.services.vms.list(None)} == {"running"}


@pytest.mark.fault("F117")
def test_a_host_that_does_not_return_is_failed_and_out_and_a_person_decides_about_the_others(
    plane: ControlPlane,
) -> None:
    def strike(_number: int, moment: str, name: str) -> None:
        if (moment, name, plane.machine(A100_HOST).driver_version) == ("after", "provision", NEW):
            plane.machine(A100_HOST).answers = False

    plane.hosts.strike = strike
    upgrade = upgraded(plane, canary=0, failure_budget=2)
    assert (upgrade.state, phases(upgrade)) == (
        "halted", {A100_HOST: "failed", L40S_HOST: "waiting", T4_HOST: "waiting"}
    )  # fmt: skip
    lost = plane.services.hosts.get(A100_HOST).host
    assert (lost.state, lost.cordoned) == ("failed", True)
    plane.services.maintenances.resume()
    assert set(phases(go_on(plane)).values()) == {"failed", "waiting"}, "it is still away, and one may be out"
    plane.machine(A100_HOST).answers = True
    stuck = plane.services.operations.get(str(upgrade.host(A100_HOST).swap))
    plane.services.operations.retry(stuck.id)
    plane.engine.drain()
    assert plane.services.hosts.get(A100_HOST).host.state == "ready"
    ended = go_on(plane)
    assert (ended.state, phases(ended)) == ("done", {A100_HOST: "failed", L40S_HOST: "done", T4_HOST: "done"})


def test_bundles_stay_while_a_host_may_need_them_to_go_back(plane: ControlPlane) -> None:
    plane.services.driver_upgrades.start(wanted())
    for bundle in plane.services.driver_bundles.list():
        with pytest.raises(Conflict) as caught:
            plane.services.driver_bundles.remove(bundle.sha256)
        assert caught.value.code == "bundle.in_use"
    go_on(plane)
    for bundle in plane.services.driver_bundles.list():
        plane.services.driver_bundles.remove(bundle.sha256)
