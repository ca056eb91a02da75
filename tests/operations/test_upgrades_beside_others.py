# SPDX-License-Identifier: Apache-2.0
"""A host whose driver others use as well is left as it is: its VMs are not stopped for nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.control_plane import A100_HOST, L40S_HOST, T4_HOST, ControlPlane, plane_with
from tests.fakes.drivers import with_bundle
from tests.operations.test_driver_upgrades import HOSTS, NEW, OLD, go_on, phases, upgraded, wanted, with_vms


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A VM runs on each host."""
    with plane_with(tmp_path, *HOSTS) as made:
        with_bundle(made, OLD)
        with_bundle(made, NEW)
        with_vms(made)
        yield made


BY_HAND = "11111111-2222-4333-8444-555555555555"


def make_by_hand(plane: ControlPlane) -> None:
    """Somebody makes a vGPU on the first host's GPU."""
    machine = plane.machine(T4_HOST)
    parent, type_name, _ = next(iter(machine.mdevs.values()))
    machine.mdevs[BY_HAND] = (parent, type_name, None)
    plane.observer.observe(T4_HOST)


@pytest.mark.fault("F109")
def test_a_host_whose_driver_others_use_is_left_as_it_is_and_its_vms_run_on(plane: ControlPlane) -> None:
    make_by_hand(plane)
    planned = plane.services.driver_upgrades.plan(wanted())
    assert phases(planned) == {A100_HOST: "waiting", L40S_HOST: "waiting", T4_HOST: "kept"}
    assert f"vGPU {BY_HAND}" in planned.host(T4_HOST).why
    plane.hosts.effects.clear()
    upgrade = upgraded(plane, hosts=(T4_HOST,), failure_budget=0)
    assert (upgrade.state, phases(upgrade)) == ("done", {T4_HOST: "kept"})
    assert plane.hosts.effects == []
    assert not plane.services.hosts.get(T4_HOST).host.cordoned


def test_what_others_make_before_a_hosts_turn_keeps_it_before_its_vms_are_stopped(plane: ControlPlane) -> None:
    plane.services.driver_upgrades.start(wanted(hosts=(A100_HOST, T4_HOST)))
    make_by_hand(plane)
    upgrade = go_on(plane)
    assert (upgrade.state, phases(upgrade)) == ("done", {A100_HOST: "done", T4_HOST: "kept"})
    assert plane.services.vms.get("default", f"on-{T4_HOST}").state == "running"


@pytest.mark.parametrize("given_up", [True, False])
def test_a_host_that_is_removed_or_given_up_before_its_turn_holds_nobody_up(
    plane: ControlPlane, given_up: bool
) -> None:
    """Not even those that go after the first ones, of which it is one."""
    services = plane.services
    services.vms.delete("default", f"on-{L40S_HOST}")
    plane.engine.drain()
    services.driver_upgrades.start(wanted(hosts=(T4_HOST, L40S_HOST, A100_HOST), canary=2))
    assert phases(services.maintenances.get())[L40S_HOST] == "waiting"
    if given_up:
        plane.machine(L40S_HOST).answers = False
        plane.observer.observe(L40S_HOST)
        services.hosts.forget(L40S_HOST, confirm=L40S_HOST)
    else:
        services.hosts.remove(L40S_HOST)
        plane.engine.drain()
    upgrade = go_on(plane)
    assert (upgrade.state, phases(upgrade)) == ("done", {T4_HOST: "done", L40S_HOST: "kept", A100_HOST: "done"})
    assert upgrade.host(L40S_HOST).why == "the host was removed or given up before its turn"
