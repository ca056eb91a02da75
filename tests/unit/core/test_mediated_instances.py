# SPDX-License-Identifier: Apache-2.0
"""MIG-backed vGPUs as mediated devices: what is drawn, done, and seen of them."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.core.actions.host_actions import (
    CreateGpuInstance,
    DestroyGpuInstance,
    EnableVirtualFunctions,
    MakeVgpu,
    RemoveMdev,
    SetMigMode,
    VgpuPosition,
)
from orchestrator.core.attachments import changes_gpu, draw, make, observed_on, remove, still_free
from orchestrator.core.gpu.device import InstancePlace, Mdev, VgpuParent
from orchestrator.core.hosts.snapshot import GpuInstance
from tests.unit.services.test_live_geometry import a100

GPU, VF, OTHER_VF = "0000:c1:00.0", "0000:c1:00.4", "0000:c1:00.5"
UUID, TYPE, PLACE = "3d1c5f10-20f4-4f6e-9a53-2d1a3c7b9e04", "GRID A100-1-10C", InstancePlace("1g.10gb", 2)


def parent(address: str, *mdevs: Mdev, inside: int | None = None) -> VgpuParent:
    return VgpuParent(
        address=address, is_vf=True, current_type=None, creatable=(), mdevs=mdevs, owner=None, in_use=False,
        gpu_instance=inside,
    )  # fmt: skip


IDLE = replace(a100(mig=True), address=GPU, framework="mdev", parents=(parent(VF), parent(OTHER_VF)))


def test_a_mediated_device_is_drawn_with_its_instance_and_made_after_it() -> None:
    device = draw(IDLE, TYPE, taken=frozenset({VF}), new_uuid=UUID, instance=PLACE)
    assert device is not None
    assert (device.kind, device.name, device.parent, device.instance) == ("mig_backed", UUID, OTHER_VF, PLACE)
    assert changes_gpu(device)
    instance = CreateGpuInstance(vm="a", gpu=GPU, profile="1g.10gb", start=2)
    made = MakeVgpu(vm="a", uuid=UUID, parent=OTHER_VF, type_name=TYPE, at=VgpuPosition(within="instance", start=2))
    assert make("a", device) == (SetMigMode(gpu=GPU, on=True), EnableVirtualFunctions(gpu=GPU), instance, made)
    assert remove("a", device) == (RemoveMdev(vm="a", uuid=UUID), DestroyGpuInstance(vm="a", gpu=GPU, start=2))
    assert still_free(IDLE, device, "a")


def test_a_time_sliced_one_on_a_gpu_in_mig_mode_has_it_leave_that() -> None:
    device = draw(IDLE, "GRID A100-10C", taken=frozenset(), new_uuid=UUID)
    assert device is not None
    assert (device.kind, device.leaves_mig) == ("mdev", True)
    made = MakeVgpu(vm="a", uuid=UUID, parent=VF, type_name="GRID A100-10C")
    assert make("a", device) == (SetMigMode(gpu=GPU, on=False), made)


def test_what_is_there_is_seen_once_with_the_instance_around_it() -> None:
    """An instance without a vGPU, and a vGPU whose instance is not told, each for itself."""
    ours, others = (Mdev(uuid=f"{UUID[:-1]}{end}", type_name=TYPE, owner=vm) for end, vm in (("4", "a"), ("5", None)))
    gpu = replace(
        IDLE,
        parents=(parent(VF, ours, inside=7), parent(OTHER_VF, others)),
        instances=tuple(
            GpuInstance(id=number, profile="1g.10gb", start=start, size=2, compute=(0,), owner=owner)
            for number, start, owner in ((7, 2, "a"), (8, 4, None))
        ),
    )
    seen = {(one.device.name, one.device.gi_start, one.owner, one.device.kind) for one in observed_on(gpu)}
    assert seen == {
        (ours.uuid, 2, "a", "mig_backed"),
        (others.uuid, None, None, "mig_backed"),
        (f"{GPU}, GPU instance 1g.10gb at slot 4", 4, None, "mig_backed"),
    }
    (mine,) = (one.device for one in observed_on(gpu) if one.owner == "a")
    assert still_free(gpu, mine, "a")
    assert not still_free(gpu, mine, "b")
