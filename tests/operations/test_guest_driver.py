# SPDX-License-Identifier: Apache-2.0
"""Where a VM may run by its driver, and what differs from the locked versions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.drivers.guest_facts import GuestFacts
from orchestrator.core.drivers.lock import Component, DriverLock, Locked, LockGroup
from orchestrator.core.errors import Conflict, InvalidInput
from orchestrator.core.guest.guest import GuestRecord
from orchestrator.services.messages import HostChange
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, create_vm, plane_with


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST) as made:
        yield made


def _carries(plane: ControlPlane, version: str | None) -> None:
    plane.services.images.set_guest_driver("guest", version)


def _host_gets(plane: ControlPlane, version: str) -> None:
    plane.machine(T4_HOST).driver_version = version
    plane.observer.observe(T4_HOST)


def _state(plane: ControlPlane) -> str:
    return plane.services.vms.get("default", "train").state


@pytest.mark.fault("F118")
def test_a_vm_is_not_made_on_a_host_whose_driver_refuses_its_own_and_the_row_is_named(plane: ControlPlane) -> None:
    _host_gets(plane, "580.65.05")
    _carries(plane, "550.54.14")
    for ask in (plane.services.vms.create, plane.services.vms.plan):
        with pytest.raises(Conflict) as caught:
            ask(create_vm())
        assert caught.value.code == "vm.driver_forbidden"
        assert "VM default/train has driver 550.54.14 and host t4 has 580.65.05" in caught.value.message
        assert "(driver_matrix.csv, row vgpu_release 19.0)" in caught.value.message
    assert plane.services.vms.list(None) == ()
    _carries(plane, "570.124.06")
    plane.services.vms.create(create_vm())
    plane.engine.drain()
    assert _state(plane) == "running"


@pytest.mark.fault("F118")
def test_a_stopped_vm_does_not_start_after_the_host_went_two_branches_on(plane: ControlPlane) -> None:
    _host_gets(plane, "570.124.03")
    _carries(plane, "570.124.06")
    plane.services.vms.create(create_vm())
    plane.engine.drain()
    plane.services.vms.stop("default", "train")
    plane.engine.drain()
    _host_gets(plane, "595.58.02")
    with pytest.raises(Conflict) as caught:
        plane.services.vms.start("default", "train")
    assert (caught.value.code, _state(plane)) == ("vm.driver_forbidden", "stopped")
    _host_gets(plane, "580.65.05")
    plane.services.vms.start("default", "train")
    plane.engine.drain()
    assert _state(plane) == "running"


@pytest.mark.fault("F118")
def test_a_driver_that_changes_while_the_vm_is_made_is_noticed_before_it_starts(plane: ControlPlane) -> None:
    _carries(plane, "580.65.06")
    started = plane.services.vms.create(create_vm())
    _host_gets(plane, "535.54.06")
    plane.engine.drain()
    assert started.operation is not None
    operation = plane.services.operations.get(started.operation)
    assert operation.state == "undone"
    assert "vm.driver_forbidden" in str(operation.error)
    assert plane.services.vms.list(None) == ()


@pytest.mark.parametrize(("carried", "host"), [(None, "580.65.05"), ("580.65.06", "999.1.1"), ("999.1.1", "580.65.05")])
def test_what_nobody_knows_is_not_forbidden(plane: ControlPlane, carried: str | None, host: str) -> None:
    _host_gets(plane, host)
    _carries(plane, carried)
    plane.services.vms.create(create_vm())
    plane.engine.drain()
    assert _state(plane) == "running"


def _verdicts(plane: ControlPlane) -> dict[tuple[str, str], tuple[str, str | None]]:
    return {(row.subject, row.part): (row.verdict, row.wanted) for _, row in plane.services.driver_locks.check()}


def test_hosts_and_vms_are_compared_with_what_is_locked_for_them(plane: ControlPlane) -> None:
    plane.add_host(L40S_HOST)
    plane.services.hosts.change(L40S_HOST, HostChange(labels={"ring": "canary"}))
    _carries(plane, "580.65.06")
    plane.services.vms.create(create_vm())
    plane.engine.drain()
    canary = LockGroup(
        name="canary", selector="ring=canary", locked=(Locked(component="host_driver", version="595.58.02"),)
    )
    site = (
        Locked(component="host_driver", version="580.95.02"), Locked(component="guest_driver", version="580.65.06"),
    )  # fmt: skip
    plane.services.driver_locks.apply(DriverLock(site=site, groups=(canary,)))
    found = _verdicts(plane)
    assert found["host t4", "host_driver"] == ("ok", "580.95.02")
    assert found["host l40s", "host_driver"] == ("drift", "595.58.02")
    assert found["VM default/train", "guest_driver"] == ("ok", "580.65.06")
    assert found["host t4", "kernel"] == ("ok", None)
    _carries(plane, None)
    assert _verdicts(plane)["VM default/train", "guest_driver"] == ("unknown", "580.65.06")
    _carries(plane, "550.54.14")
    assert _verdicts(plane)["VM default/train", "guest_driver"] == ("forbidden", "580.65.06")


def test_what_roles_found_in_a_guest_is_compared_too(plane: ControlPlane) -> None:
    plane.services.vms.create(create_vm())
    plane.engine.drain()
    assert {part for _, part in _verdicts(plane)} == {"host_driver", "kernel", "guest_driver"}
    (vm,) = plane.services.vms.list(None)

    def found(**facts: Any) -> dict[str, tuple[str, str | None]]:
        with plane.store.begin() as tx:
            tx.guests.put(GuestRecord(vm=vm.id, host_key=None, facts=GuestFacts(**facts)))
        parts = {"cuda", "cudnn", "container_toolkit"}
        return {part: told for (_, part), told in _verdicts(plane).items() if part in parts}

    tools = {"driver": "580.65.06", "cuda_toolkit": "12.8", "container_toolkit": "1.17.8", "cudnn": "9.9.0"}
    assert found(**tools) == {"cuda": ("ok", None), "cudnn": ("ok", None), "container_toolkit": ("ok", None)}
    wanted: dict[Component, str] = {"cuda": "13.0 Update 2", "cudnn": "9.13.1.26", "container_toolkit": "1.17.4"}
    locked = tuple(Locked(component=part, version=version) for part, version in wanted.items())
    plane.services.driver_locks.apply(DriverLock(site=locked))
    assert found(**tools) == {name: ("drift", one) for name, one in wanted.items()}
    right = found(cuda_toolkit="13.0", container_toolkit="1.17.4", cudnn="9.13.1")
    assert right == {name: ("ok", one) for name, one in wanted.items()}
    assert found(driver="550.54.14", cuda_toolkit="13.0") == {"cuda": ("forbidden", "13.0 Update 2")}
    assert found(driver="{{ lies }}", cuda_toolkit="99.9") == {"cuda": ("drift", "13.0 Update 2")}


def test_who_forbids_an_upgrade_is_known_before_it(plane: ControlPlane) -> None:
    _host_gets(plane, "570.124.03")
    _carries(plane, "550.54.14")
    plane.services.vms.create(create_vm())
    plane.engine.drain()
    judged = {
        row.subject: row for _, row in plane.services.driver_locks.check("580.65.05") if row.part == "guest_driver"
    }
    assert judged["VM default/train"].verdict == "forbidden"
    assert "row vgpu_release 19.0" in judged["VM default/train"].reason
    assert all(row.verdict != "forbidden" for _, row in plane.services.driver_locks.check())
    with pytest.raises(InvalidInput):
        plane.services.driver_locks.check("new")


def test_a_host_with_another_driver_than_the_locked_one_is_a_finding_until_it_has_it(plane: ControlPlane) -> None:
    locked = (Locked(component="host_driver", version="580.82.02"),)
    plane.services.driver_locks.apply(DriverLock(site=locked))

    def standing() -> list[tuple[str, str, str]]:
        plane.reconciler.observe(T4_HOST)
        listed = plane.findings.list(host=T4_HOST)
        return [(one.finding.code, one.finding.wanted, one.finding.observed) for one in listed]

    assert standing() == [("driver.drift", "driver 580.82.02", "driver 580.95.02")]
    plane.machine(T4_HOST).driver_version = "580.82.02"
    assert standing() == []
