# SPDX-License-Identifier: Apache-2.0
"""Whole GPUs of an NVSwitch baseboard: the partition is the VM's from its start to its end, and nobody else's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from orchestrator.core.attachments.host_facts import facts_of
from orchestrator.core.diff import Finding
from orchestrator.core.errors import NoCapacity
from orchestrator.core.gpu.device import Device
from orchestrator.core.vms.vm import Vm
from orchestrator.store.snapshots import facts_from_text, facts_text
from tests.fakes.control_plane import ControlPlane, create_vm, plane_with
from tests.fakes.fake_machine import FakeMachine, snapshot_of
from tests.operations.fabric import HOST, with_board


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path) as made:
        with_board(made)
        yield made


def created(plane: ControlPlane, name: str, count: int) -> Vm:
    plane.services.vms.create(create_vm(name, profile=f"gpu:{count}"))
    plane.engine.drain()
    return vm_of(plane, name)


def vm_of(plane: ControlPlane, name: str) -> Vm:
    with plane.store.read() as tx:
        return next(vm for vm in tx.vms.list(host=HOST) if vm.spec.name == name)


def machine(plane: ControlPlane) -> FakeMachine:
    return plane.machine(HOST)


def found(plane: ControlPlane) -> dict[str, Finding]:
    plane.findings.observe(HOST)
    return {one.finding.code: one.finding for one in plane.findings.list(host=HOST)}


def refused(plane: ControlPlane, count: int) -> dict[str, str]:
    """Code → message of each reason."""
    plane.observer.observe(HOST)
    with pytest.raises(NoCapacity) as caught:
        plane.services.vms.create(create_vm("another", profile=f"gpu:{count}"))
    return {reason.code: reason.message for reason in caught.value.reasons}


def test_the_vm_holds_its_partition_with_its_module_ids_and_the_last_gpu_brings_it(plane: ControlPlane) -> None:
    vm = created(plane, "train", 2)
    assert vm.state == "running"
    places = [device.fabric for device in vm.devices]
    assert places[0] is None
    assert places[1] is not None
    place = places[1]
    modules = {gpu.address: gpu.module_id for gpu in machine(plane).gpus}
    assert tuple(modules[gpu] for gpu in place.gpus) == place.modules
    assert set(machine(plane).partitions[place.partition]) == set(place.modules)
    assert machine(plane).active_partitions == {place.partition: vm.id}
    assert tuple(Device.from_fields(json.loads(json.dumps(asdict(one)))) for one in vm.devices) == vm.devices


def test_the_map_names_the_partition_to_those_who_watch_the_pool(plane: ControlPlane) -> None:
    place = created(plane, "train", 2).devices[1].fabric
    assert place is not None
    capacity = plane.services.capacity
    assert {
        row.gpu: row.fabric_partition for row in capacity.gpu_map() if row.host == HOST and row.cut
    } == dict.fromkeys(place.gpus, place.partition)
    assert {row.fabric_partition for row in capacity.gpu_map() if not row.cut} == {None}
    assert [row.fabric_partition for row in capacity.own_gpu_map(["default"])] == [None, None]
    plane.services.vms.delete("default", "train")
    plane.engine.drain()
    assert {row.fabric_partition for row in capacity.gpu_map()} == {None}


@pytest.mark.fault("F90")
def test_no_whole_gpu_is_promised_while_the_fabric_manager_is_down_and_those_that_run_are_left_alone(
    plane: ControlPlane,
) -> None:
    created(plane, "train", 1)
    machine(plane).fabric_problem = "the host's fabric manager does not answer"
    before = machine(plane).state()
    assert refused(plane, 1)["gpu.not_whole"].endswith("the host's fabric manager does not answer")
    findings = found(plane)
    assert set(findings) == {"host.fabric"}
    assert findings["host.fabric"].repair is None
    assert machine(plane).state() == before


@pytest.mark.fault("F92")
def test_what_cannot_be_joined_after_all_is_taken_back_and_holds_nothing(plane: ControlPlane) -> None:
    sibling = created(plane, "sibling", 1)
    before = machine(plane).state()
    free = next(number for number in (3, 4) if sibling.devices[0].fabric is not None and not set(
        sibling.devices[0].fabric.modules) & set(machine(plane).partitions[number]))  # fmt: skip
    machine(plane).active_partitions[free] = None
    started = plane.services.vms.create(create_vm(profile="gpu:2"))
    plane.engine.drain()
    assert plane.services.operations.get(str(started.operation)).state == "undone"
    del machine(plane).active_partitions[free]
    assert machine(plane).state() == before
    with plane.store.read() as tx:
        assert [claim.vm for claim in tx.claims.of_host(HOST)] == [sibling.id]


def test_a_partition_that_nobody_here_owns_is_told_of_and_never_touched(plane: ControlPlane) -> None:
    machine(plane).active_partitions[3] = None
    finding = found(plane)["orphan.partition"]
    assert (finding.whose, finding.repair, finding.subject) == ("foreign", None, "fabric partition 3")
    assert "fabric partition 3 is active" in refused(plane, 4)["gpu.not_whole"]
    plane.findings.repair(host=HOST)
    plane.engine.drain()
    created(plane, "two", 2)
    assert machine(plane).active_partitions == {3: None, 4: vm_of(plane, "two").id}


def test_what_a_deleted_vm_left_active_is_given_back(plane: ControlPlane) -> None:
    vm = created(plane, "train", 2)
    kept = dict(machine(plane).active_partitions)
    plane.services.vms.delete("default", "train")
    plane.engine.drain()
    assert machine(plane).active_partitions == {}
    machine(plane).active_partitions = kept
    assert found(plane)["orphan.partition"].vm == vm.id
    plane.findings.repair(host=HOST)
    plane.engine.drain()
    assert machine(plane).active_partitions == {}


@pytest.mark.fault("F91")
def test_a_partition_that_was_forgotten_is_said_and_its_vm_runs_on(plane: ControlPlane) -> None:
    created(plane, "train", 2)
    machine(plane).active_partitions.clear()
    before = machine(plane).state()
    finding = found(plane)["vm.partition_inactive"]
    assert (finding.severity, finding.repair) == ("error", None)
    plane.findings.repair(host=HOST)
    plane.engine.drain()
    assert machine(plane).state() == before


def test_facts_of_a_fabric_are_kept_as_they_were_told(plane: ControlPlane) -> None:
    created(plane, "train", 2)
    facts = facts_of(snapshot_of(machine(plane)))
    assert facts.fabric is not None
    assert facts_from_text(facts_text(facts), facts.disk_bytes) == facts
