# SPDX-License-Identifier: Apache-2.0
"""A rolling upgrade that stops VMs as the policies of their tenants say, in virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict
from orchestrator.core.maintenance.leaving import parse_window
from orchestrator.services.maintenance.waits import PlannedMaintenance
from tests.fakes.control_plane import A100_HOST, L40S_HOST, T4_HOST, ControlPlane, create_vm, plane_with
from tests.fakes.drivers import with_bundle
from tests.fakes.fake_host import no_fault
from tests.operations.test_driver_upgrades import HOSTS, NEW, OLD, PROFILES, go_on, keeper, phases, upgraded, wanted
from tests.operations.test_upgrade_windows import at_time

TENANTS = {A100_HOST: "red", L40S_HOST: "blue", T4_HOST: "green"}


def create(plane: ControlPlane, tenant: str, name: str, host: str, *, start: bool = True) -> None:
    wish = create_vm(name, profile=PROFILES[host], start=start)
    plane.services.vms.create(replace(wish, tenant=tenant, host=host))
    plane.engine.drain()


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A VM of another tenant on each host; it is noon."""
    with plane_with(tmp_path, *HOSTS) as made:
        for version in (OLD, NEW):
            with_bundle(made, version)
        for host, tenant in TENANTS.items():
            made.services.tenancy.tenants.create(tenant)
            create(made, tenant, "train", host)
        at_time(made, 12)
        yield made


def says(plane: ControlPlane, tenant: str, policy: str) -> None:
    plane.services.tenancy.policies.change(tenant, {"maintenance": policy})


def state(plane: ControlPlane, tenant: str) -> str:
    return plane.services.vms.get(tenant, "train").state


def awaited(plane: ControlPlane) -> dict[str, list[str]]:
    """By host, the tenants that it waits for."""
    upgrade = plane.services.maintenances.get()
    waits = plane.services.maintenances.now(upgrade).waits
    return {host: [one.tenant for one in wait.tenants] for host, wait in waits.items()}


def records(plane: ControlPlane) -> list[str]:
    return [record.action for record in plane.services.tenancy.audit.list(limit=50)]


def test_a_host_waits_for_its_tenants_window_and_the_others_go_before_it(plane: ControlPlane) -> None:
    says(plane, "red", "22:00-05:00")
    closed = upgraded(plane)
    assert phases(closed) == {L40S_HOST: "done", T4_HOST: "done", A100_HOST: "waiting"}
    assert (closed.state, state(plane, "red")) == ("running", "running")
    assert not plane.services.hosts.get(A100_HOST).host.cordoned, "it serves until its turn comes"
    assert awaited(plane) == {A100_HOST: ["red"]}
    at_time(plane, 3)
    ended = go_on(plane)
    assert (ended.state, phases(ended)[A100_HOST], state(plane, "red")) == ("done", "done", "running")


def test_vms_of_a_tenant_that_is_waited_for_are_stopped_by_its_users_alone(plane: ControlPlane) -> None:
    says(plane, "blue", "wait")
    upgraded(plane)
    at_time(plane, 3)
    assert phases(go_on(plane))[L40S_HOST] == "waiting"
    assert (awaited(plane), state(plane, "blue")) == ({L40S_HOST: ["blue"]}, "running")
    plane.services.vms.stop("blue", "train")
    plane.engine.drain()
    ended = go_on(plane)
    assert (ended.state, phases(ended)[L40S_HOST]) == ("done", "done")
    assert state(plane, "blue") == "stopped", "its user stopped it"


def test_a_host_of_two_tenants_is_emptied_when_both_windows_are_open(plane: ControlPlane) -> None:
    create(plane, "red", "other", T4_HOST)
    says(plane, "red", "20:00-23:00")
    says(plane, "green", "22:00-02:00")
    upgraded(plane, hosts=(T4_HOST,))
    at_time(plane, 21)
    assert phases(go_on(plane)) == {T4_HOST: "waiting"}
    assert (awaited(plane), state(plane, "green")) == ({T4_HOST: ["green", "red"]}, "running")
    at_time(plane, 22)
    assert phases(go_on(plane)) == {T4_HOST: "done"}


def test_windows_that_never_meet_are_refused_before_anything_begins(plane: ControlPlane) -> None:
    create(plane, "red", "other", T4_HOST)
    says(plane, "red", "20:00-22:00")
    says(plane, "green", "22:00-02:00")
    for begin in (plane.services.driver_upgrades.plan, plane.services.driver_upgrades.start):
        with pytest.raises(Conflict) as caught:
            begin(wanted())
        assert caught.value.code == "upgrade.windows_apart"
        assert f"on host {T4_HOST} the windows of green (22:00-02:00) and red (20:00-22:00)" in caught.value.message
    assert upgraded(plane, policy="stop").state == "done"


def test_a_window_of_the_upgrade_and_one_of_a_tenant_that_never_meet_are_refused(plane: ControlPlane) -> None:
    says(plane, "red", "20:00-22:00")
    with pytest.raises(Conflict, match=r"red \(20:00-22:00\) and of the upgrade \(09:00-10:00\)") as caught:
        plane.services.driver_upgrades.start(wanted(window=parse_window("09:00-10:00")))
    assert caught.value.code == "upgrade.windows_apart"


def test_windows_that_come_apart_later_keep_their_host_waiting_and_are_named(plane: ControlPlane) -> None:
    says(plane, "red", "20:00-22:00")
    upgraded(plane, window=parse_window("20:00-23:00"), hosts=(A100_HOST,))
    says(plane, "red", "23:00-23:30")
    at_time(plane, 21)
    upgrade = go_on(plane)
    assert phases(upgrade) == {A100_HOST: "waiting"}
    assert plane.services.maintenances.now(upgrade).waits[A100_HOST].no_common_window


def test_what_an_operator_says_for_all_goes_before_the_policies_and_is_on_record(plane: ControlPlane) -> None:
    says(plane, "red", "wait")
    says(plane, "blue", "22:00-05:00")
    upgrade = upgraded(plane, policy="stop")
    assert (upgrade.state, upgrade.overridden) == ("done", ("blue", "red"))
    assert f"upgrade_drivers {NEW}, VMs stop over the policies of blue, red" in records(plane)


def test_hosts_that_nobody_is_waited_for_go_first_and_are_the_canary(plane: ControlPlane) -> None:
    says(plane, "red", "wait")
    says(plane, "blue", "22:00-05:00")
    planned = plane.services.driver_upgrades.plan(wanted())
    assert [one.host for one in planned.hosts] == [T4_HOST, L40S_HOST, A100_HOST]
    waits = plane.services.maintenances.now(planned).waits
    assert {host: [one.policy for one in wait.tenants] for host, wait in waits.items()} == {
        L40S_HOST: ["22:00-05:00"], A100_HOST: ["wait"],
    }  # fmt: skip
    assert plane.services.vms.get("green", "train").state == "running", "nothing was begun"


def test_a_tenant_is_told_of_a_stop_that_is_planned_and_of_none_when_it_is_over(plane: ControlPlane) -> None:
    def planned(tenant: str) -> PlannedMaintenance | None:
        return plane.services.maintenances.planned().of(plane.services.vms.get(tenant, "train"))

    assert planned("red") is None
    says(plane, "red", "22:00-05:00")
    says(plane, "blue", "wait")
    plane.services.driver_upgrades.start(wanted(canary=0))
    plane.services.maintenances.pause()
    ten = plane.world.clock.now() // 86400 * 86400 + 22 * 3600
    red, blue = planned("red"), planned("blue")
    assert red is not None
    assert (red.act, red.policy, red.opens_at) == ("upgrade", "22:00-05:00", ten)
    assert blue is not None
    assert (blue.policy, blue.opens_at) == ("wait", None)
    plane.services.maintenances.resume()
    go_on(plane)
    assert planned("green") is None, "its host is done"
    plane.services.maintenances.cancel()
    assert [planned(tenant) for tenant in TENANTS.values()] == [None, None, None]


@pytest.mark.fault("F109")
def test_a_vm_is_not_started_on_a_host_that_is_being_emptied(plane: ControlPlane) -> None:
    create(plane, "red", "resting", A100_HOST, start=False)
    plane.services.driver_upgrades.start(wanted(hosts=(A100_HOST,)))
    keeper(plane).round()
    with pytest.raises(Conflict) as caught:
        plane.services.vms.start("red", "resting")
    assert caught.value.code == "host.provisioning"
    assert go_on(plane).state == "done"
    plane.services.vms.start("red", "resting")
    plane.engine.drain()
    assert plane.services.vms.get("red", "resting").state == "running"


def test_how_far_each_host_is_is_told_while_it_is_under_way(plane: ControlPlane) -> None:
    said: list[str] = []

    def told(_number: int, moment: str, _name: str) -> None:
        upgrade = plane.services.maintenances.get()
        if moment == "before":
            said.extend(plane.services.maintenances.now(upgrade).progress.values())

    plane.services.driver_upgrades.start(wanted(hosts=(T4_HOST,)))
    plane.hosts.strike = told
    assert go_on(plane).state == "done"
    assert list(dict.fromkeys(said)) == [
        "0 of 1 VMs are stopped", "install the driver", "try a vGPU", "0 of 1 VMs run again"
    ]  # fmt: skip
    plane.hosts.strike = no_fault
    assert plane.services.maintenances.now(plane.services.maintenances.get()).progress == {}


def test_a_host_that_was_away_gets_its_turn_when_it_answers_again(plane: ControlPlane) -> None:
    observer = replace(plane.observer, news=keeper(plane).round)
    plane.services.driver_upgrades.start(wanted(hosts=(T4_HOST, A100_HOST), canary=0))
    plane.machine(A100_HOST).answers = False
    observer.observe(A100_HOST)
    assert phases(go_on(plane)) == {T4_HOST: "done", A100_HOST: "waiting"}
    plane.machine(A100_HOST).answers = True
    observer.observe(A100_HOST)
    assert phases(plane.services.maintenances.get())[A100_HOST] == "emptying", "nothing else had to happen"
    assert go_on(plane).state == "done"


def test_a_guest_that_ends_by_itself_is_waited_for_no_longer(plane: ControlPlane) -> None:
    says(plane, "green", "wait")
    observer = replace(plane.observer, news=keeper(plane).round)
    upgraded(plane, hosts=(T4_HOST,))
    machine, vm = plane.machine(T4_HOST), plane.services.vms.get("green", "train")
    machine.domains[vm.id] = (machine.domains[vm.id][0], False)
    observer.observe(T4_HOST)
    ended = go_on(plane)
    assert (ended.state, phases(ended)) == ("done", {T4_HOST: "done"})
    assert machine.driver_version == NEW
