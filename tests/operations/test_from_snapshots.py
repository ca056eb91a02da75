# SPDX-License-Identifier: Apache-2.0
"""VMs whose disk is a copy of another's snapshot: what is on it, where they go, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.actions.disk_snapshots import CopySnapshot
from orchestrator.core.errors import Conflict, InvalidInput, NoCapacity, NotFound, VgpuctlError
from orchestrator.core.tenancy.quota import Limit
from orchestrator.core.units import GIB, MIB
from orchestrator.core.vms.vm import Vm
from orchestrator.services.messages import CreateVm
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.fake_machine import FakeMachine, t4
from tests.fakes.recount import miscounted
from tests.operations import disk_snapshots as own
from tests.operations.suspending import delete, running


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    made = control_plane(tmp_path)
    own.with_snapshot(running(T4_HOST))(made)
    yield made
    made.store.close()


def copy_of(**more: Any) -> CreateVm:
    return replace(own.copy_of(), **{"profile": "GRID T4-2Q", **more})


def made(plane: ControlPlane, request: CreateVm) -> Vm:
    plane.services.vms.create(request)
    plane.engine.drain()
    return plane.services.vms.get("default", request.name)


def test_its_disk_is_a_copy_that_outlives_what_it_was_made_of(plane: ControlPlane) -> None:
    machine, vm = plane.machine(T4_HOST), plane.services.vms.get("default", "train")
    then = machine.written[vm.volume]
    machine.written[vm.volume] = "written since"
    twin = made(plane, copy_of(disk_bytes=2 * GIB))
    assert (twin.state, twin.host, twin.spec.disk_bytes) == ("running", T4_HOST, 2 * GIB)
    assert machine.volumes[twin.volume] == (twin.id, 2 * GIB, machine.volumes[vm.volume][2])
    with plane.store.read() as tx:
        assert not list(miscounted(tx))
        assert tx.quotas.used("default")["disk"] == 4 * GIB // MIB, "two disks, and the snapshot"
    delete(plane)
    plane.engine.drain()
    assert machine.written[twin.volume] == then
    assert plane.services.vms.create(copy_of(disk_bytes=2 * GIB)).existing, "asked for again"


def test_it_takes_a_place_of_copies_and_none_of_its_host(plane: ControlPlane) -> None:
    for request in (copy_of(), create_vm("plain", profile="GRID T4-2Q")):
        plane.services.vms.create(request)
    with plane.store.read() as tx:
        assert [run.line for run in tx.operations.due()] == [f"copies on {T4_HOST}", T4_HOST]


def test_a_disk_that_is_left_to_the_profile_has_room_for_it(plane: ControlPlane) -> None:
    vm = plane.services.vms.get("default", "train")
    large = replace(vm.snapshots[0], size_bytes=100 * GIB)
    with plane.store.begin() as tx:
        tx.vms.change(vm.id, snapshots=(large,))
    assert made(plane, copy_of(disk_bytes=0)).spec.disk_bytes == 100 * GIB


def test_a_plan_tells_of_the_copy(plane: ControlPlane) -> None:
    planned = plane.services.vms.plan(copy_of())
    (copied,) = (action for action in planned.actions if isinstance(action, CopySnapshot))
    assert copied.of == plane.services.vms.get("default", "train").id
    assert "<backingStore" in str(planned.domain_xml)


def test_it_goes_to_the_snapshots_host_or_is_told_why_not(plane: ControlPlane) -> None:
    plane.add_host(L40S_HOST)
    with pytest.raises(InvalidInput) as refused:
        plane.services.vms.create(copy_of(profile="NVIDIA L40S-12Q"))
    assert refused.value.message == "the host of its snapshot can never hold NVIDIA L40S-12Q"
    told = {reason.code: reason for reason in refused.value.reasons}
    assert L40S_HOST in told["host.no_snapshot"].subjects
    assert "is on another host" in told["host.no_snapshot"].message


def test_what_has_no_room_now_beside_hosts_that_are_alike_may_have_it_later(plane: ControlPlane) -> None:
    """Of hosts that are alike one is asked for all whether it would fit were it empty."""
    for name in ("a", "z"):
        machine = FakeMachine(machine_id=name, gpus=[t4(), t4("0000:42:00.0")])
        plane.hosts.machines[f"{name}.test"] = machine
        plane.add_host(name)
    assert made(plane, replace(create_vm("large", profile="GRID T4-16Q"), host=T4_HOST)).host == T4_HOST
    with pytest.raises(NoCapacity) as full:
        plane.services.vms.create(copy_of(profile="GRID T4-16Q"))
    assert {reason.code for reason in full.value.reasons} > {"host.no_snapshot"}


def test_another_host_that_is_asked_for_is_told_first(plane: ControlPlane) -> None:
    plane.add_host(L40S_HOST)
    with pytest.raises(NoCapacity) as refused:
        plane.services.vms.create(copy_of(host=L40S_HOST))
    assert refused.value.told is not None
    assert refused.value.told.message == "its snapshot is on another host than it is to be on"


def test_what_is_asked_for_wrongly_is_refused_before_it_is_begun(plane: ControlPlane) -> None:
    vm = plane.services.vms.get("default", "train")
    plane.services.tenancy.tenants.create("others")

    def refused(code: str, family: type[VgpuctlError], request: CreateVm) -> VgpuctlError:
        with pytest.raises(family) as raised:
            plane.services.vms.create(request)
        assert raised.value.code == code
        assert raised.value.hint
        return raised.value

    refused("disk.too_small", InvalidInput, copy_of(disk_bytes=vm.spec.disk_bytes - MIB))
    refused("snapshot.unknown", NotFound, copy_of(from_snapshot="train/befor"))
    refused("snapshot.name_invalid", InvalidInput, copy_of(from_snapshot="train"))
    refused("vm.unknown", NotFound, copy_of(tenant="others"))
    refused("vm.exists", Conflict, copy_of(name="train"))
    with plane.store.begin() as tx:
        tx.quotas.put(Limit(tenant="default", resource="disk", amount=2 * vm.spec.disk_bytes // MIB))
    refused("quota.exceeded", VgpuctlError, copy_of())
    with plane.store.begin() as tx:
        tx.vms.change(vm.id, snapshots=(replace(vm.snapshots[0], taken_of=None),))
    refused("snapshot.unfinished", Conflict, copy_of())
