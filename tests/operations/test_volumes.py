# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from orchestrator.core.actions.volumes import (
    AttachVolume,
    CreateDataVolume,
)
from orchestrator.core.errors import Conflict, InvalidInput, NoCapacity, NotFound, QuotaExceeded, VgpuctlError
from orchestrator.core.hosts.domain import DiskLimits
from orchestrator.core.units import show_size
from orchestrator.core.vms.volume import Volume
from orchestrator.services.messages import CreateVm, Started
from orchestrator.services.vms.volumes import VolumeTraits
from tests.fakes.control_plane import GIB, L40S_HOST, T4_HOST, ControlPlane, create_vm, plane_with
from tests.fakes.fake_data_volumes import keeps
from tests.fakes.fake_machine import data_of
from tests.operations.test_vm_life import finished, make
from tests.operations.volumes import SIZE


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST, L40S_HOST) as made:
        yield made


def volume(plane: ControlPlane, name: str = "data") -> Volume:
    return plane.services.volumes.get("default", name).volume


def having(*volumes: str, name: str = "train", host: str | None = None) -> CreateVm:
    return replace(create_vm(name), volumes=volumes, host=host)


def done(plane: ControlPlane, started: Started) -> None:
    ended = finished(plane, started.operation)
    assert ended.state == "done", ended.error


def refused(code: str, kind: type[VgpuctlError], call: Callable[[], object]) -> VgpuctlError:
    with pytest.raises(kind) as error:
        call()
    assert error.value.code == code
    return error.value


def test_a_volume_is_made_with_its_first_vm_and_stays_when_that_goes(plane: ControlPlane) -> None:
    volumes, machine = plane.services.volumes, plane.machine(T4_HOST)
    made = volumes.create("default", "data", SIZE)
    assert (made.volume.state, made.volume.host, machine.data) == ("new", None, {})
    assert volumes.create("default", "data", SIZE) == made
    done(plane, plane.services.vms.create(having("data")))
    vm = plane.services.vms.get("default", "train")
    there = volume(plane)
    assert (there.state, there.host, there.vm) == ("ready", T4_HOST, vm.id)
    assert machine.data == {there.file: (SIZE, vm.id)}
    assert data_of(machine.domains[vm.id][0]) == (there.file,)
    done(plane, plane.services.vms.delete("default", "train"))
    assert (volume(plane).vm, machine.data) == (None, {there.file: (SIZE, None)})
    done(plane, plane.services.vms.create(having("data", name="next")))
    assert plane.services.vms.get("default", "next").host == T4_HOST
    assert volumes.get("default", "data").vm == "next"


def test_a_vm_goes_where_its_volume_lies_and_every_answer_says_so(plane: ControlPlane) -> None:
    vms = plane.services.vms
    plane.services.volumes.create("default", "data", SIZE, L40S_HOST)
    refused("vm.never_fits", InvalidInput, lambda: vms.create(having("data")))
    refused("vm.never_fits", InvalidInput, lambda: vms.plan(having("data")))
    error = refused("volume.elsewhere", Conflict, lambda: vms.create(having("data", host=T4_HOST)))
    assert "'vgpuctl volume show data'" in str(error.hint)
    refused("volume.elsewhere", Conflict, lambda: vms.plan(having("data", host=T4_HOST)))
    other = replace(having("data"), profile="NVIDIA L40S-12Q")
    plan = vms.plan(other)
    there = volume(plane)
    assert plan.host == L40S_HOST
    assert CreateDataVolume(volume=there.file, size_bytes=SIZE) in plan.actions
    assert any(isinstance(action, AttachVolume) for action in plan.actions)
    done(plane, vms.create(other))
    assert vms.get("default", "train").host == L40S_HOST


def test_a_stopped_vm_gets_volumes_and_gives_them_back(plane: ControlPlane) -> None:
    volumes, machine = plane.services.volumes, plane.machine(T4_HOST)
    make(plane, start=False)
    vm = plane.services.vms.get("default", "train")
    for name in ("data", "more"):
        volumes.create("default", name, SIZE)
        done(plane, volumes.attach("default", name, "train"))
    files = (volume(plane).file, volume(plane, "more").file)
    assert data_of(machine.domains[vm.id][0]) == files
    assert volumes.attach("default", "data", "train").operation is None
    done(plane, plane.services.vms.start("default", "train"))
    assert data_of(machine.domains[vm.id][0]) == files
    done(plane, plane.services.vms.stop("default", "train"))
    done(plane, volumes.detach("default", "data", "train"))
    assert data_of(machine.domains[vm.id][0]) == files[1:]
    assert (volume(plane).vm, volumes.detach("default", "data", "train").operation) == (None, None)
    done(plane, volumes.delete("default", "data"))
    assert set(machine.data) == {files[1]}
    refused("volume.unknown", NotFound, lambda: volumes.get("default", "data"))


def test_a_running_vm_gets_volumes_and_gives_them_back(plane: ControlPlane) -> None:
    volumes, machine = plane.services.volumes, plane.machine(T4_HOST)
    make(plane)
    vm = plane.services.vms.get("default", "train")
    volumes.create("default", "data", SIZE)
    done(plane, volumes.attach("default", "data", "train"))
    assert data_of(machine.domains[vm.id][0]) == (volume(plane).file,)
    machine.written[keeps(vm.id)] = "mounted"
    ended = finished(plane, volumes.detach("default", "data", "train").operation)
    assert ended.state == "undone"
    assert (ended.error or {})["code"] == "vm.device_kept"
    assert (volume(plane).vm, data_of(machine.domains[vm.id][0])) == (vm.id, (volume(plane).file,))
    del machine.written[keeps(vm.id)]
    done(plane, volumes.detach("default", "data", "train"))
    assert (volume(plane).vm, data_of(machine.domains[vm.id][0])) == (None, ())
    assert plane.services.vms.get("default", "train").state == "running"


def iops(plane: ControlPlane, host: str = T4_HOST) -> list[str | None]:
    """Of the disks of the VM's domain that are limited, in their order."""
    xml, _ = plane.machine(host).domains[plane.services.vms.get("default", "train").id]
    return [tune.findtext("total_iops_sec") for tune in ET.fromstring(xml).iter("iotune")]


def test_limits_of_a_volume_hold_in_each_vm_that_has_it(plane: ControlPlane) -> None:
    volumes, vms = plane.services.volumes, plane.services.vms
    volumes.create("default", "data", SIZE, traits=VolumeTraits(limits=DiskLimits(iops=500)))
    assert volumes.create("default", "data", SIZE).volume.max_iops == 500, "the same again"
    refused(
        "volume.exists",
        Conflict,
        lambda: volumes.create("default", "data", SIZE, traits=VolumeTraits(limits=DiskLimits(iops=600))),
    )
    with pytest.raises(Conflict, match=r"^there is already a volume data with another size and another host$"):
        volumes.create("default", "data", 2 * SIZE, T4_HOST)
    done(plane, vms.create(having("data")))
    assert iops(plane) == ["500"]
    done(plane, volumes.limit("default", "data", None, 300))
    assert (iops(plane), vms.get("default", "train").state, volume(plane).max_iops) == (["300"], "running", 300)
    assert volumes.limit("default", "data", None, 300).existing
    done(plane, vms.stop("default", "train"))
    done(plane, volumes.limit("default", "data", 2**20, None))
    done(plane, volumes.detach("default", "data", "train"))
    assert iops(plane) == []
    assert volumes.limit("default", "data", None, 200).operation is None, "no VM has it"
    done(plane, volumes.attach("default", "data", "train"))
    done(plane, vms.start("default", "train"))
    assert iops(plane) == ["200"]
    done(plane, volumes.limit("default", "data", 0, 0))
    assert (iops(plane), volume(plane).max_bytes_per_s, volume(plane).max_iops) == ([], None, None)


def test_limits_that_no_volume_can_have_are_refused(plane: ControlPlane) -> None:
    volumes = plane.services.volumes
    volumes.create("default", "data", SIZE)
    refused("volume.limits_invalid", InvalidInput, lambda: volumes.limit("default", "data", None, 9))
    refused("volume.limits_invalid", InvalidInput, lambda: volumes.limit("default", "data", 1, None))
    refused(
        "volume.limits_invalid",
        InvalidInput,
        lambda: volumes.create("default", "b", SIZE, traits=VolumeTraits(limits=DiskLimits(iops=-1))),
    )
    refused("volume.unknown", NotFound, lambda: volumes.limit("default", "nothing", 0, 0))
    assert (volume(plane).max_iops, volume(plane).max_bytes_per_s) == (None, None)


def test_a_volume_becomes_larger_and_never_smaller(plane: ControlPlane) -> None:
    volumes, machine, quotas = plane.services.volumes, plane.machine(T4_HOST), plane.services.tenancy.quotas
    volumes.create("default", "data", SIZE)
    assert volumes.resize("default", "data", 2 * SIZE).operation is None, "no host has a file of it yet"
    done(plane, plane.services.vms.create(having("data")))
    done(plane, volumes.resize("default", "data", 3 * SIZE))
    vm = plane.services.vms.get("default", "train")
    assert (volume(plane).size_bytes, machine.data[volume(plane).file]) == (3 * SIZE, (3 * SIZE, vm.id))
    assert volumes.resize("default", "data", 3 * SIZE).operation is None
    refused("volume.shrinks", InvalidInput, lambda: volumes.resize("default", "data", SIZE))
    error = refused("volume.no_capacity", NoCapacity, lambda: volumes.resize("default", "data", 600 * GIB))
    assert f"free disk for another {show_size(600 * GIB - volume(plane).size_bytes)}" in error.message
    used = {one.resource: one.used for one in quotas.get("default")}["disk"]
    quotas.change("default", {"disk": used + 1024})
    refused("quota.exceeded", QuotaExceeded, lambda: volumes.resize("default", "data", 4 * SIZE))
    assert volume(plane).size_bytes == 3 * SIZE


def test_nothing_else_is_begun_on_a_volume_that_grows(plane: ControlPlane) -> None:
    volumes = plane.services.volumes
    volumes.create("default", "data", SIZE)
    done(plane, plane.services.vms.create(having("data")))
    growing = volumes.resize("default", "data", 2 * SIZE)
    refused("vm.busy", Conflict, lambda: volumes.detach("default", "data", "train"))
    refused("vm.busy", Conflict, lambda: volumes.resize("default", "data", 3 * SIZE))
    assert volumes.resize("default", "data", 2 * SIZE).operation == growing.operation, "it is not done yet"
    done(plane, growing)
    done(plane, plane.services.vms.delete("default", "train"))
    growing = volumes.resize("default", "data", 3 * SIZE)
    refused("volume.busy", Conflict, lambda: volumes.delete("default", "data"))
    refused("volume.busy", Conflict, lambda: plane.services.vms.create(having("data", name="next")))
    done(plane, growing)
    done(plane, volumes.delete("default", "data"))


def test_a_volume_that_a_vm_has_is_not_deleted_and_nobody_elses(plane: ControlPlane) -> None:
    volumes, vms = plane.services.volumes, plane.services.vms
    volumes.create("default", "data", SIZE)
    done(plane, vms.create(having("data")))
    make(plane, "other", start=False)
    for call in (
        lambda: volumes.delete("default", "data"),
        lambda: volumes.attach("default", "data", "other"),
        lambda: vms.create(having("data", name="third")),
        lambda: vms.plan(having("data", name="third")),
    ):
        assert "VM train" in refused("volume.attached", Conflict, call).message
    refused("volume.not_attached", Conflict, lambda: volumes.detach("default", "data", "other"))
    plane.services.tenancy.tenants.create("research")
    refused("volume.unknown", NotFound, lambda: volumes.get("research", "data"))
    refused("volume.unknown", NotFound, lambda: vms.plan(replace(having("data"), tenant="research")))
    refused("volume.repeated", InvalidInput, lambda: vms.plan(having("data", "data", name="third")))
    assert vms.create(having("data")).existing, "the same command again"


def test_volumes_count_as_disks_do(plane: ControlPlane) -> None:
    plane.services.tenancy.quotas.change("default", {"disk": 3 * 1024})
    plane.services.volumes.create("default", "data", SIZE)
    (disk,) = [one for one in plane.services.tenancy.quotas.get("default") if one.resource == "disk"]
    assert disk.used == 2 * 1024
    refused("quota.exceeded", QuotaExceeded, lambda: plane.services.volumes.create("default", "more", SIZE))
    done(plane, plane.services.vms.create(create_vm()))
    refused("quota.exceeded", QuotaExceeded, lambda: plane.services.vms.create(create_vm("second")))


def test_a_host_has_room_for_its_volumes_as_for_disks(plane: ControlPlane) -> None:
    volumes, vms = plane.services.volumes, plane.services.vms
    volumes.create("default", "large", 495 * GIB, T4_HOST)
    refused("volume.no_capacity", NoCapacity, lambda: volumes.create("default", "more", 6 * GIB, T4_HOST))
    volumes.create("default", "small", 6 * GIB)
    refused("gpu.no_capacity", NoCapacity, lambda: vms.create(having("small")))
    refused("gpu.no_capacity", NoCapacity, lambda: vms.plan(having("small")))
    done(plane, vms.create(having("large")))
    done(plane, vms.stop("default", "train"))
    refused("volume.no_capacity", NoCapacity, lambda: volumes.attach("default", "small", "train"))
    assert volume(plane, "small").host is None
    done(plane, vms.delete("default", "train"))
    done(plane, volumes.delete("default", "large"))
    assert vms.plan(having("small")).host == T4_HOST


def test_volumes_of_a_host_that_was_given_up_are_lost(plane: ControlPlane) -> None:
    volumes = plane.services.volumes
    volumes.create("default", "data", SIZE)
    done(plane, plane.services.vms.create(having("data")))
    plane.machine(T4_HOST).answers = False
    plane.observer.observe(T4_HOST)
    plane.services.hosts.forget(T4_HOST, confirm=T4_HOST)
    assert volume(plane).state == "lost"
    done(plane, plane.services.vms.delete("default", "train"))
    refused("volume.lost", Conflict, lambda: plane.services.vms.plan(having("data")))
    assert volumes.delete("default", "data").operation is None
    assert volumes.list(None) == ()


def test_a_host_with_volumes_is_not_given_back(plane: ControlPlane) -> None:
    plane.services.volumes.create("default", "data", SIZE)
    done(plane, plane.services.vms.create(having("data")))
    done(plane, plane.services.vms.delete("default", "train"))
    refused("host.has_volumes", Conflict, lambda: plane.services.hosts.remove(T4_HOST))
    plane.services.tenancy.tenants.create("research")
    plane.services.volumes.create("research", "data", SIZE)
    refused("tenant.in_use", Conflict, lambda: plane.services.tenancy.tenants.delete("research"))


def test_a_volume_whose_file_is_gone_and_one_that_nobody_knows_are_told_of(plane: ControlPlane) -> None:
    plane.services.volumes.create("default", "data", SIZE)
    done(plane, plane.services.vms.create(having("data")))
    machine, file = plane.machine(T4_HOST), volume(plane).file
    assert plane.findings.observe(T4_HOST) == ()
    stranger = f"data.{'0' * 8}-0000-4000-8000-{'0' * 12}.raw"
    machine.data = {stranger: (SIZE, None)}
    found = {one.finding.code: one.finding for one in plane.findings.observe(T4_HOST)}
    assert set(found) == {"volume.missing", "orphan.data"}
    assert file in found["volume.missing"].wanted
    assert all(one.repair is None for one in found.values())
