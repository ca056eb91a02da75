# SPDX-License-Identifier: Apache-2.0
"""What a host must show before its VMs come back to it: layouts, schedulers, a vGPU of each mode."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.core.errors import Fatal
from tests.fakes.control_plane import A100_HOST, L40S_HOST, ControlPlane, create_vm, plane_with
from tests.fakes.drivers import with_bundle
from tests.operations import layouts
from tests.operations.test_driver_upgrades import NEW, OLD, upgraded


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, A100_HOST, L40S_HOST) as made:
        with_bundle(made, OLD)
        with_bundle(made, NEW)
        yield made


def with_layout(plane: ControlPlane, *profiles: str) -> None:
    layouts.apply(*profiles)(plane)
    plane.engine.drain()


def told(plane: ControlPlane, host: str = A100_HOST) -> tuple[str, str, str]:
    """How the host ended, why, and what was said of the vGPU that was tried."""
    one = upgraded(plane, hosts=(host,)).host(host)
    steps = plane.services.operations.get(str(one.swap)).steps
    return one.phase, one.why, next(step.message for step in steps if step.name == "probe_vgpu.1")


def test_a_gpu_in_mig_mode_is_tried_with_an_instance_beside_its_layout_and_the_layout_stays(
    plane: ControlPlane,
) -> None:
    with_layout(plane, "1g.20gb", "1g.10gb")
    before = plane.machine(A100_HOST).state()["gpus"]
    phase, why, said = told(plane)
    assert (phase, why) == ("done", "")
    assert "GRID A100D-1-10C in 1g.10gb at slot" in said
    assert plane.machine(A100_HOST).state()["gpus"] == before


def test_a_driver_that_makes_mediated_devices_is_tried_with_one_in_mig_mode_too(plane: ControlPlane) -> None:
    with_layout(plane, "1g.20gb")
    plane.machine(A100_HOST).gpus[0].framework = "mdev"
    plane.observer.observe(A100_HOST)
    phase, why, said = told(plane)
    assert (phase, why, "in 1g.10gb at slot" in said) == ("done", "", True)
    assert plane.machine(A100_HOST).mdevs == {}


def test_a_layout_that_leaves_no_place_is_said_and_nothing_is_tried(plane: ControlPlane) -> None:
    with_layout(plane, *["1g.10gb"] * 7)
    phase, _, said = told(plane)
    assert (phase, "no GPU instance fits beside its layout: not tried" in said) == ("done", True)
    assert plane.hosts.effects[-1] == "provision"


def test_a_gpu_that_tells_no_memory_of_its_own_is_well(plane: ControlPlane) -> None:
    """As one whose memory is the host's: NVML answers that it does not support the question."""
    for gpu in plane.machine(L40S_HOST).gpus:
        gpu.tells_memory = False
    assert told(plane, L40S_HOST)[:2] == ("done", "")


def test_a_driver_that_makes_no_gpu_instance_is_taken_back(plane: ControlPlane) -> None:
    with_layout(plane, "1g.20gb")

    def strike(_number: int, _moment: str, name: str) -> Fatal | None:
        new = plane.machine(A100_HOST).driver_version == NEW
        return Fatal("gpu.instance_failed", "no instance") if new and name == "CreateGpuInstance" else None

    plane.hosts.strike = strike
    assert upgraded(plane, hosts=(A100_HOST,)).host(A100_HOST).phase == "rolled_back"
    assert plane.machine(A100_HOST).driver_version == OLD


@pytest.mark.fault("F113")
def test_a_layout_that_is_not_back_with_the_new_driver_is_named_and_the_old_one_comes_back(plane: ControlPlane) -> None:
    with_layout(plane, "1g.20gb")
    gpu = plane.machine(A100_HOST).gpus[0]
    kept = dict(gpu.instances)

    def strike(_number: int, moment: str, name: str) -> None:
        if (moment, name) == ("after", "provision"):
            gpu.instances = {} if plane.machine(A100_HOST).driver_version == NEW else dict(kept)

    plane.hosts.strike = strike
    phase, why, _ = told(plane)
    assert phase == "rolled_back"
    assert f"the MIG layout of GPU {gpu.address} is not back: no 1g.20gb at slot" in why


@pytest.mark.fault("F113")
def test_a_driver_without_the_scheduler_that_a_vm_wants_is_named_and_taken_back(plane: ControlPlane) -> None:
    plane.services.vms.create(create_vm(profile="l40s-12q-equal"))
    plane.engine.drain()
    vm = plane.services.vms.get("default", "train")
    gpu = next(gpu for gpu in plane.machine(L40S_HOST).gpus if gpu.address == vm.devices[0].gpu)

    def strike(_number: int, moment: str, name: str) -> None:
        if (moment, name) == ("after", "provision"):
            gpu.schedules = plane.machine(L40S_HOST).driver_version != NEW

    plane.hosts.strike = strike
    phase, why, _ = told(plane, L40S_HOST)
    assert phase == "rolled_back"
    assert f"GPU {gpu.address} has no scheduler to set, and VM default/train wants equal share" in why
    assert plane.services.vms.get("default", "train").state == "running"
