# SPDX-License-Identifier: Apache-2.0
"""One host gets its driver, or stays as it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.core.errors import VgpuctlError
from orchestrator.core.operation import Operation
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, create_vm, plane_with
from tests.fakes.drivers import with_locked_driver

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
