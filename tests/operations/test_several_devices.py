# SPDX-License-Identifier: Apache-2.0
"""VMs with whole GPUs, and with several devices: claimed, made and given back together, and apart from all else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.api.schemas.vm_parts import device_members
from orchestrator.core.errors import Fatal, NoCapacity, QuotaExceeded
from orchestrator.core.offerings.offering import Offering
from orchestrator.services.messages import CreateVm
from orchestrator.services.vms.capacity import Question
from tests.fakes.control_plane import L40S_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.fake_host import FakeHosts
from tests.fakes.fake_machine import FakeMachine, l40s

GPUS = tuple(f"0000:8{number}:00.0" for number in range(1, 5))


@pytest.fixture
def plane(tmp_path: Path) -> ControlPlane:
    machine = FakeMachine(machine_id="m1", gpus=[l40s(address) for address in GPUS])
    made = control_plane(tmp_path, hosts=FakeHosts({f"{L40S_HOST}.test": machine}))
    made.add_host(L40S_HOST)
    return made


def wanted(name: str, profile: str) -> CreateVm:
    return create_vm(name, profile=profile)


def state_after(plane: ControlPlane, request: CreateVm) -> str:
    operation = plane.services.vms.create(request).operation
    plane.engine.drain()
    return plane.services.operations.get(str(operation)).state


def drivers(plane: ControlPlane) -> list[str | None]:
    """Whose each GPU is while vfio-pci has it."""
    return [gpu.passed_to[1] if gpu.passed_to else None for gpu in plane.machine(L40S_HOST).gpus]


def test_two_whole_gpus_are_claimed_bound_and_given_back_together(plane: ControlPlane) -> None:
    before = plane.machine(L40S_HOST).state()
    assert state_after(plane, wanted("train", "l40s-x2")) == "done"
    vm = plane.services.vms.get("default", "train")
    assert [(one.kind, one.type_name) for one in vm.devices] == [("passthrough", "NVIDIA L40S")] * 2
    assert {device_members(one, watching=True)["gpu_model"] for one in vm.devices} == {"L40S"}
    assert drivers(plane).count("NVIDIA L40S") == 2
    plane.services.vms.stop("default", "train")
    plane.engine.drain()
    assert drivers(plane) == [None] * 4
    plane.services.vms.start("default", "train")
    plane.engine.drain()
    assert {device_members(one, watching=True)["gpu_model"] for one in vm.devices} == {"L40S"}
    assert drivers(plane).count("NVIDIA L40S") == 2
    plane.services.vms.delete("default", "train")
    plane.engine.drain()
    assert plane.machine(L40S_HOST).state() == before


def test_a_gpu_is_given_out_whole_or_in_parts_and_never_both(plane: ControlPlane) -> None:
    assert state_after(plane, wanted("part", "NVIDIA L40S-12Q")) == "done"
    part = plane.services.vms.get("default", "part").devices[0].gpu
    with pytest.raises(NoCapacity) as refused:
        plane.services.vms.create(wanted("four", "gpu:4"))
    assert [reason.code for reason in refused.value.reasons] == ["gpu.too_few"]
    assert state_after(plane, wanted("three", "gpu:2")) == "done"
    whole = {device.gpu for device in plane.services.vms.get("default", "three").devices}
    assert part not in whole
    for number in range(7):  # the rest of the part's GPU, and the one that is empty
        assert state_after(plane, wanted(f"part-{number}", "NVIDIA L40S-12Q")) == "done"
    with pytest.raises(NoCapacity):
        plane.services.vms.create(wanted("too-many", "NVIDIA L40S-12Q"))
    parts = {device.gpu for vm in plane.services.vms.list(None) for device in vm.devices if not device.is_whole_gpu}
    assert parts.isdisjoint(whole)


def test_whoever_asks_about_whole_gpus_hears_the_same(plane: ControlPlane) -> None:
    capacity, question = plane.services.capacity, Question(profile="l40s-x2")
    assert plane.services.profiles.get("l40s-x2").free == 1, (
        "the host's memory is not enough for two of their usual size"
    )
    assert [row.fits_now for row in capacity.capacity(question)] == [1]
    assert [row.fits_now for row in capacity.capacity(replace(question, memory_mib=256))] == [2]
    assert capacity.explain(question).explanation.fits
    planned = plane.services.vms.plan(wanted("train", "l40s-x2"))
    assert "BindVfio" in {type(action).__name__ for action in planned.actions}
    assert state_after(plane, wanted("part", "NVIDIA L40S-12Q")) == "done"
    assert state_after(plane, wanted("train", "l40s-x2")) == "done"
    assert plane.services.profiles.get("l40s-x2").free == 0
    assert [row.fits_now for row in capacity.capacity(question)] == [0]
    assert not capacity.explain(question).explanation.fits
    with pytest.raises(NoCapacity):
        plane.services.vms.plan(wanted("more", "l40s-x2"))


def test_a_quota_of_a_model_counts_its_whole_gpus(plane: ControlPlane) -> None:
    plane.services.tenancy.quotas.change("default", {"devices:L40S": 2})
    with pytest.raises(QuotaExceeded):
        plane.services.vms.create(wanted("four", "gpu:4"))
    assert state_after(plane, wanted("two", "gpu:2")) == "done"
    with pytest.raises(QuotaExceeded):
        plane.services.vms.create(wanted("one", "NVIDIA L40S-12Q"))


@pytest.mark.fault("F12")
@pytest.mark.parametrize("kind,action", [("vgpus", "MakeVgpu"), ("gpus", "BindVfio")])
def test_the_first_two_of_four_devices_are_taken_back_when_the_third_fails(
    plane: ControlPlane, kind: str, action: str
) -> None:
    four = Offering(name="four", origin="site", kind="time_sliced", vgpu_type="NVIDIA L40S-48Q", vgpu_count=4)
    if kind == "gpus":
        four = replace(four, kind="passthrough", vgpu_type=None, vgpu_count=1, gpu_count=4, gpu_models=("L40S",))
    with plane.store.begin() as tx:
        tx.offerings.put(four)
    before, seen = plane.machine(L40S_HOST).state(), [0]

    def third(_number: int, moment: str, name: str) -> BaseException | None:
        seen[0] += (moment, name) == ("before", action)
        return Fatal("test.refused", "refused") if (seen[0], moment, name) == (3, "before", action) else None

    plane.hosts.strike = third
    assert state_after(plane, wanted("train", "four")) == "undone"
    assert plane.machine(L40S_HOST).state() == before
    with plane.store.read() as tx:
        assert tx.claims.list() == ()
    assert state_after(plane, wanted("train", "four")) == "done"
    assert len({device.gpu for device in plane.services.vms.get("default", "train").devices}) == 4
