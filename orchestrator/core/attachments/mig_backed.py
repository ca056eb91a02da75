# SPDX-License-Identifier: Apache-2.0
"""vGPUs in GPU instances of their own: MIG on, the instance at its place, then the vGPU, on a virtual function by the
framework that the GPU's driver has for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from xml.etree.ElementTree import Element

from orchestrator.core.actions.host_actions import (
    CreateGpuInstance,
    EnableVirtualFunctions,
    HostAction,
    SetMigMode,
    VgpuPosition,
)
from orchestrator.core.attachments.functions import Attachment, made_at, with_parameters
from orchestrator.core.attachments.mdev import ATTACHMENT as AS_MDEV
from orchestrator.core.attachments.mdev import mediated
from orchestrator.core.attachments.vendor_vfio import ATTACHMENT as ON_FUNCTION
from orchestrator.core.attachments.vendor_vfio import typed
from orchestrator.core.gpu.device import Device, InstancePlace, ObservedDevice
from orchestrator.core.hosts.snapshot import GpuInstance, GpuSnapshot
from orchestrator.core.names import is_uuid


def _carrier(device: Device) -> Attachment:
    """How the vGPU itself reaches the VM."""
    return AS_MDEV if is_uuid(device.name) else ON_FUNCTION


def _draw(gpu: GpuSnapshot, type_name: str, taken: frozenset[str], new_uuid: str) -> Device | None:
    """Without its instance, which placement knows."""
    carrier = AS_MDEV if gpu.framework == "mdev" else ON_FUNCTION
    device = carrier.draw(gpu, type_name, taken, new_uuid)
    return None if device is None else replace(device, kind="mig_backed", leaves_mig=False)


def _make(vm_id: str, device: Device) -> tuple[HostAction, ...]:
    """Of an instance that holds no vGPU: the instance alone."""
    place = device.instance
    if place is None:
        return _carrier(device).make(vm_id, device)
    instance = CreateGpuInstance(vm=vm_id, gpu=device.gpu, profile=place.profile, start=place.start)
    # Switching virtual functions on later would destroy the instance.
    before = (SetMigMode(gpu=device.gpu, on=True), EnableVirtualFunctions(gpu=device.gpu))
    if device.function is None:
        return (*before, instance)
    made = made_at(vm_id, device, VgpuPosition(within="instance", start=place.start))
    return (*before, instance, made, *with_parameters(vm_id, device))


def _still_free(gpu: GpuSnapshot, device: Device, vm_id: str) -> bool:
    return _carrier(device).still_free(gpu, device, vm_id)


def _observed(gpu: GpuSnapshot) -> Iterator[ObservedDevice]:
    """vGPUs with the instance around each, and instances that hold none."""
    if not gpu.mig_enabled:
        return
    instances = {item.id: item for item in gpu.instances}
    inside = set()
    for item in (*typed(gpu), *mediated(gpu)):
        parent = next(parent for parent in gpu.parents if parent.address == item.device.parent)
        instance = instances.get(-1 if parent.gpu_instance is None else parent.gpu_instance)
        inside.add(parent.gpu_instance)
        device = replace(item.device, kind="mig_backed").inside(None if instance is None else _place(instance))
        yield replace(item, device=device)
    for instance in gpu.instances:
        if instance.id not in inside:
            yield ObservedDevice(device=_alone(gpu, instance), owner=instance.owner, in_use=False)


def _alone(gpu: GpuSnapshot, instance: GpuInstance) -> Device:
    name = f"{gpu.address}, GPU instance {instance.profile} at slot {instance.start}"
    device = Device(kind="mig_backed", gpu=gpu.address, parent=gpu.address, type_name=instance.profile, name=name)
    return device.inside(_place(instance))


def _place(instance: GpuInstance) -> InstancePlace:
    return InstancePlace(instance.profile, instance.start)


def _hostdev(device: Device) -> Element:
    return _carrier(device).hostdev(device)


ATTACHMENT = Attachment(
    draw=_draw,
    make=_make,
    still_free=_still_free,
    observed=_observed,
    hostdev=_hostdev,
    changes_gpu=True,
)
