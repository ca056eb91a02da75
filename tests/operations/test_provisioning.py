# SPDX-License-Identifier: Apache-2.0
"""One host gets its driver, or stays as it was."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from orchestrator.core.drivers.lock import DriverLock, Locked
from orchestrator.core.errors import VgpuctlError
from orchestrator.core.hosts.bridges import outside_ovn
from orchestrator.core.operation import Operation
from orchestrator.core.ovn import HostInOvn, HostsOfOvn
from orchestrator.services.messages import HostChange
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, create_vm, plane_with
from tests.fakes.driver_files import deb_file
from tests.fakes.drivers import with_file, with_locked_driver

OLD, NEW = "580.95.02", "580.105.06"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST, L40S_HOST) as made:
        yield made


def _provisioned(plane: ControlPlane, host: str = T4_HOST) -> Operation:
    started = plane.services.provisioning.provision(host)
    plane.engine.drain()
    return plane.services.operations.get(str(started.operation))


def _code(operation: Operation) -> object:
    return (operation.error or {}).get("code")


def test_a_host_gets_the_locked_driver_and_a_second_time_changes_nothing(plane: ControlPlane) -> None:
    with_locked_driver(plane, NEW, before=OLD)
    assert _provisioned(plane).state == "done"
    assert plane.machine(T4_HOST).driver_version == NEW
    before = plane.machine(T4_HOST).state()
    assert _provisioned(plane).state == "done"
    assert plane.machine(T4_HOST).state() == before
    assert plane.services.hosts.get(T4_HOST).host.state == "ready"


@pytest.mark.fault("F62", "F109")
def test_a_driver_that_a_vm_uses_is_not_touched(plane: ControlPlane) -> None:
    plane.services.vms.create(create_vm())
    plane.engine.drain()
    with_locked_driver(plane, NEW, before=OLD)
    plane.hosts.effects.clear()
    operation = _provisioned(plane)
    assert (operation.state, _code(operation)) == ("undone", "driver.in_use")
    assert plane.hosts.effects == []
    assert plane.services.vms.get("default", "train").state == "running"


def test_a_host_that_has_its_driver_and_would_be_rebooted_for_its_system_keeps_its_vms(plane: ControlPlane) -> None:
    plane.services.vms.create(create_vm())
    plane.engine.drain()
    with_locked_driver(plane, OLD)
    plane.machine(T4_HOST).gpus[1].driver = "nouveau"
    plane.hosts.effects.clear()
    operation = _provisioned(plane)
    assert (operation.state, _code(operation)) == ("undone", "driver.in_use")
    assert plane.hosts.effects == []


@pytest.mark.fault("F120")
def test_a_file_that_was_changed_since_it_was_checked_reaches_no_host(plane: ControlPlane, tmp_path: Path) -> None:
    bundle = with_locked_driver(plane, NEW, before=OLD)
    with (tmp_path / "driver-bundles" / bundle.sha256).open("ab") as file:
        file.write(b"more")
    plane.hosts.effects.clear()
    operation = _provisioned(plane)
    assert (operation.state, _code(operation)) == ("undone", "bundle.damaged")
    assert plane.hosts.effects == []


@pytest.mark.fault("F113")
def test_a_host_that_then_shows_another_driver_goes_back_to_the_old_one(plane: ControlPlane) -> None:
    with_locked_driver(plane, NEW, before=OLD)

    def spoil(_number: int, moment: str, name: str) -> None:
        machine = plane.machine(T4_HOST)
        if (moment, name, machine.driver_version) == ("after", "provision", NEW):
            machine.driver_version = "999.1.1"

    plane.hosts.strike = spoil
    operation = _provisioned(plane)
    assert (operation.state, _code(operation)) == ("undone", "driver.not_healthy")
    assert plane.machine(T4_HOST).driver_version == OLD


@pytest.mark.fault("F113")
def test_a_host_whose_fabric_manager_does_not_go_with_the_new_driver_goes_back_to_the_old_one(
    plane: ControlPlane,
) -> None:
    with_locked_driver(plane, NEW, before=OLD)
    machine = plane.machine(T4_HOST)
    machine.partitions = {1: (1, 2)}

    def spoil(_number: int, moment: str, name: str) -> None:
        if (moment, name, machine.driver_version) == ("after", "provision", NEW):
            machine.fabric_problem = f"the fabric manager is {OLD}, the driver {NEW}"

    plane.hosts.strike = spoil
    operation = _provisioned(plane)
    assert (operation.state, _code(operation)) == ("undone", "driver.not_healthy")
    assert f"the fabric manager is {OLD}" in str(operation.error)
    assert machine.driver_version == OLD


def test_what_would_change_has_the_fabric_manager_and_the_reboot_too(plane: ControlPlane) -> None:
    with_locked_driver(plane, NEW)
    with_file(plane, deb_file("nvidia-fabricmanager-580", NEW))
    locked = (Locked(component="host_driver", version=NEW), Locked(component="fabric_manager", version=NEW))
    plane.services.driver_locks.apply(DriverLock(site=locked))
    driver = f"driver {OLD} becomes {NEW}"
    assert plane.services.provisioning.plan(T4_HOST) == (driver,), "no fabric manager is seen there"
    machine = plane.machine(T4_HOST)
    machine.partitions, machine.gpus[1].driver = {1: (1, 2)}, "nouveau"
    plane.observer.observe(T4_HOST)
    reboot = "the host is rebooted for its IOMMU, or without nouveau"
    assert plane.services.provisioning.plan(T4_HOST) == (reboot, driver, f"fabric manager {OLD} becomes {NEW}")


OVN = HostsOfOvn(central=("192.0.2.41",), network=IPv4Network("192.0.2.0/24"), mappings={"physnet1": "br-ex"})


@pytest.fixture
def in_ovn(plane: ControlPlane) -> ControlPlane:
    """A site of OVN whose first host is to be a gateway, with its driver in place; its second host is not labelled."""
    with_locked_driver(plane, OLD)
    plane.services.hosts.change(T4_HOST, HostChange(labels={"ovn": "gateway"}))
    provisioning = replace(plane.services.provisioning, ovn=OVN, inspector=plane.hosts)
    return replace(plane, services=replace(plane.services, provisioning=provisioning))


def test_a_host_with_the_label_is_brought_into_ovn_and_a_second_time_changes_nothing(in_ovn: ControlPlane) -> None:
    assert in_ovn.services.provisioning.plan(T4_HOST) == ("OVN: Say its name, its address and where OVN is",)
    assert _provisioned(in_ovn).state == "done"
    told = HostInOvn(central=("192.0.2.41",), network="192.0.2.0/24", mappings={"physnet1": "br-ex"}, gateway=True)
    assert in_ovn.hosts.told_of_ovn == {T4_HOST: told}
    snapshot = in_ovn.services.hosts.get(T4_HOST).snapshot
    assert snapshot is not None
    assert outside_ovn(snapshot.bridges, T4_HOST) is None
    assert in_ovn.services.provisioning.plan(T4_HOST) == ()
    before = in_ovn.machine(T4_HOST).bridges
    assert (_provisioned(in_ovn).state, in_ovn.machine(T4_HOST).bridges) == ("done", before)


def test_a_host_without_the_label_has_nothing_to_do_with_ovn(in_ovn: ControlPlane) -> None:
    assert in_ovn.services.provisioning.plan(L40S_HOST) == ()
    assert _provisioned(in_ovn, L40S_HOST).state == "done"
    assert "join_ovn" not in in_ovn.hosts.effects


def test_a_host_that_ovn_does_not_answer_gets_no_driver_and_is_told_why(in_ovn: ControlPlane) -> None:
    with_locked_driver(in_ovn, NEW, before=OLD)

    def cut_off(_number: int, moment: str, name: str) -> None:
        if (moment, name) == ("after", "join_ovn"):
            machine = in_ovn.machine(T4_HOST)
            machine.bridges = tuple(replace(bridge, problem="ovn-controller waits") for bridge in machine.bridges)

    in_ovn.hosts.strike = cut_off
    operation = _provisioned(in_ovn)
    assert (operation.state, _code(operation)) == ("undone", "host.no_ovn")
    assert "ovn-controller waits" in str(operation.error)
    assert in_ovn.machine(T4_HOST).driver_version == OLD


def test_a_label_without_settings_is_refused_before_anything_is_done(plane: ControlPlane) -> None:
    with_locked_driver(plane, OLD)
    plane.services.hosts.change(T4_HOST, HostChange(labels={"ovn": "member"}))
    for asked in (plane.services.provisioning.provision, plane.services.provisioning.plan):
        with pytest.raises(VgpuctlError) as caught:
            asked(T4_HOST)
        assert caught.value.code == "ovn.hosts_elsewhere"
    assert plane.services.hosts.get(T4_HOST).host.state == "ready"


def test_no_vm_starts_while_its_host_gets_a_driver(plane: ControlPlane) -> None:
    plane.services.vms.create(create_vm(start=False))
    plane.engine.drain()
    with_locked_driver(plane, NEW, before=OLD)
    plane.services.provisioning.provision(T4_HOST)
    with pytest.raises(VgpuctlError) as caught:
        plane.services.vms.start("default", "train")
    assert caught.value.code == "host.provisioning"
    plane.engine.drain()
    plane.services.vms.start("default", "train")
    plane.engine.drain()
    assert plane.services.vms.get("default", "train").state == "running"


def test_what_is_not_locked_or_not_there_is_refused_before_anything_is_done(plane: ControlPlane) -> None:
    with pytest.raises(VgpuctlError) as caught:
        plane.services.provisioning.provision(T4_HOST)
    assert caught.value.code == "driver.not_locked"
    bundle = with_locked_driver(plane, NEW)
    plane.services.driver_bundles.remove(bundle.sha256)
    with pytest.raises(VgpuctlError) as caught:
        plane.services.provisioning.provision(T4_HOST)
    assert caught.value.code == "bundle.missing"
    assert plane.services.hosts.get(T4_HOST).host.state == "ready"
