# SPDX-License-Identifier: Apache-2.0
"""Hosts whose driver cannot be swapped without a reboot, in a rolling upgrade."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.core.errors import Fatal
from orchestrator.core.maintenance.maintenance import Maintenance
from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.operations.runner import Runner
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, create_vm, plane_with
from tests.fakes.drivers import with_bundle
from tests.fakes.fake_host import Crash, no_fault
from tests.operations.test_driver_upgrades import NEW, OLD, go_on, keeper, upgraded, wanted

HOSTS = (T4_HOST, L40S_HOST)


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, *HOSTS) as made:
        with_bundle(made, OLD)
        with_bundle(made, NEW)
        made.services.vms.create(create_vm())
        made.engine.drain()
        made.machine(T4_HOST).held = True
        yield made


def seen(plane: ControlPlane, host: str = T4_HOST) -> tuple[str, str | None, str]:
    """Phase of a host, its driver, and how its VM is."""
    upgrade = plane.services.maintenances.get()
    return (
        upgrade.host(host).phase,
        plane.machine(host).driver_version,
        plane.services.vms.get("default", "train").state,
    )


def swap_of(plane: ControlPlane, upgrade: Maintenance) -> str:
    return plane.services.operations.get(str(upgrade.host(T4_HOST).swap)).id


def test_a_module_that_stays_in_use_is_got_rid_of_by_a_reboot_and_the_vm_has_its_device_again(
    plane: ControlPlane,
) -> None:
    before = plane.services.vms.get("default", "train").devices
    assert upgraded(plane, hosts=(T4_HOST,)).state == "done"
    assert seen(plane) == ("done", NEW, "running")
    assert (plane.machine(T4_HOST).boot, plane.services.vms.get("default", "train").devices) == (2, before)
    assert not plane.services.hosts.get(T4_HOST).host.cordoned


def test_no_host_is_rebooted_when_a_person_said_never(plane: ControlPlane) -> None:
    upgrade = upgraded(plane, hosts=(T4_HOST,), reboot="never")
    assert (*seen(plane), plane.machine(T4_HOST).boot) == ("rolled_back", OLD, "running", 1)
    assert "module nvidia is in use" in upgrade.host(T4_HOST).why


def test_people_are_told_that_a_host_reboots_and_why(plane: ControlPlane) -> None:
    plane.services.driver_upgrades.start(wanted(hosts=(T4_HOST,)))
    while (upgrade := plane.services.maintenances.get()).host(T4_HOST).phase != "swapping":
        plane.engine.drain()
        keeper(plane).round()
    plane.engine.waiting.clear()
    runner = Runner(plane.world, plane.journal, DEFINITIONS)
    runner.run(swap_of(plane, upgrade), stopping=lambda: plane.machine(T4_HOST).boot == 2)
    now = plane.services.maintenances.now(upgrade)
    why = "module nvidia is in use by somebody that shows no open file"
    assert now.rebooting == {T4_HOST}
    assert now.progress[T4_HOST] == f"install the driver: rebooting: {why}"
    runner.run(swap_of(plane, upgrade))
    assert go_on(plane).state == "done"


@pytest.mark.fault("F117")
def test_a_host_that_does_not_return_from_its_reboot_is_failed_by_name_and_nothing_is_done_to_it_blindly(
    plane: ControlPlane,
) -> None:
    machine = plane.machine(T4_HOST)

    def strike(_number: int, moment: str, name: str) -> None:
        if (moment, name) == ("after", "provision") and machine.boot == 2 and machine.away:
            machine.away = 10**6

    plane.hosts.strike = strike
    began = plane.world.clock.monotonic()
    upgrade = upgraded(plane, hosts=(T4_HOST, L40S_HOST), canary=0, max_unavailable=1)
    assert (upgrade.state, upgrade.host(L40S_HOST).phase) == ("halted", "waiting")
    assert seen(plane) == ("failed", None, "stopped")
    assert "did not come back from its reboot (module nvidia is in use" in upgrade.host(T4_HOST).why
    assert plane.world.clock.monotonic() - began < 1200
    assert (plane.hosts.effects.count("provision"), plane.services.hosts.get(T4_HOST).host.state) == (1, "failed")
    plane.services.operations.retry(swap_of(plane, upgrade))
    plane.engine.drain()
    assert plane.services.operations.get(swap_of(plane, upgrade)).state == "stuck", "it is away still"
    machine.away = 0
    plane.services.operations.retry(swap_of(plane, upgrade))
    plane.engine.drain()
    assert (machine.driver_version, plane.services.hosts.get(T4_HOST).host.state) == (OLD, "ready")


@pytest.mark.fault("F111")
def test_a_driver_that_does_not_load_after_the_reboot_is_taken_back_and_that_may_take_a_reboot_itself(
    plane: ControlPlane,
) -> None:
    machine = plane.machine(T4_HOST)

    def strike(_number: int, moment: str, name: str) -> Fatal | None:
        if (moment, name, machine.driver_version) == ("after", "provision", NEW):
            machine.held = True
            return Fatal("driver.not_loaded", "module nvidia of that version does not load")
        return None

    plane.hosts.strike = strike
    upgrade = upgraded(plane, hosts=(T4_HOST,))
    assert (*seen(plane), machine.boot) == ("rolled_back", OLD, "running", 3)
    assert "does not load" in upgrade.host(T4_HOST).why


@pytest.mark.fault("F115")
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_server_that_dies_around_the_reboot_is_followed_by_one_that_ends_it(
    plane: ControlPlane, moment: str, nth: int
) -> None:
    before = plane.services.vms.get("default", "train").devices
    left = [nth]

    def strike(_number: int, at: str, name: str) -> Crash | None:
        if (at, name) == (moment, "provision"):
            left[0] -= 1
        return Crash() if left == [0] and (at, name) == (moment, "provision") else None

    plane.hosts.strike = strike
    plane.services.driver_upgrades.start(wanted(hosts=(T4_HOST,)))
    with pytest.raises(Crash):
        go_on(plane)
    plane.hosts.strike = no_fault
    plane.engine.waiting.clear()
    Runner(plane.world, plane.journal, DEFINITIONS).run(swap_of(plane, plane.services.maintenances.get()))
    go_on(plane)
    assert (*seen(plane), plane.machine(T4_HOST).boot) == ("done", NEW, "running", 2)
    assert plane.services.vms.get("default", "train").devices == before


def test_one_that_is_cancelled_while_its_host_reboots_goes_back(plane: ControlPlane) -> None:
    def strike(_number: int, moment: str, name: str) -> None:
        if (moment, name, plane.machine(T4_HOST).driver_version) == ("after", "provision", None):
            plane.services.operations.cancel(swap_of(plane, plane.services.maintenances.get()))

    plane.hosts.strike = strike
    plane.services.driver_upgrades.start(wanted(hosts=(T4_HOST,)))
    keeper(plane).round()
    go_on(plane)
    assert seen(plane) == ("rolled_back", OLD, "running")
