# SPDX-License-Identifier: Apache-2.0
"""How a device reaches a VM: one file per kind, all of them the same few pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from orchestrator.core.actions.host_actions import HostAction
from orchestrator.core.attachments import mdev, mig_backed, passthrough, vendor_vfio
from orchestrator.core.attachments.functions import Attachment
from orchestrator.core.errors import Bug
from orchestrator.core.gpu.device import Device, DeviceKind, InstancePlace, ObservedDevice
from orchestrator.core.hosts.snapshot import GpuSnapshot

ATTACHMENTS: dict[DeviceKind, Attachment] = {
    "mdev": mdev.ATTACHMENT,
    "vendor_vfio": vendor_vfio.ATTACHMENT,
    "mig_backed": mig_backed.ATTACHMENT,
    "passthrough": passthrough.ATTACHMENT,
}


def draw(
    gpu: GpuSnapshot, type_name: str, *, taken: frozenset[str], new_uuid: str, instance: InstancePlace | None = None
) -> Device | None:
    """The device a VM shall have on this GPU; None when no function of the GPU is free.

    ``taken``: functions that other VMs have claimed, running or not. ``new_uuid``: for a kind that names its devices.
    ``instance``: the GPU instance it shall lie in.

    :raises Bug: ``gpu.no_framework`` when the driver offers no vGPUs on it; placement must not choose it
    """
    if gpu.framework == "none":
        raise Bug("gpu.no_framework", f"GPU {gpu.address} was chosen and offers no vGPUs")
    kind: DeviceKind = gpu.framework if instance is None else "mig_backed"
    drawn = ATTACHMENTS[kind].draw(gpu, type_name, taken, new_uuid)
    return None if drawn is None else drawn.inside(instance)


def draw_whole(address: str, model: str) -> Device:
    """The GPU itself."""
    return passthrough.whole_gpu(address, model)


def make(vm_id: str, device: Device) -> tuple[HostAction, ...]:
    return ATTACHMENTS[device.kind].make(vm_id, device)


def remove(vm_id: str, device: Device) -> tuple[HostAction, ...]:
    inverses = (action.inverse() for action in reversed(make(vm_id, device)))
    return tuple(action for action in inverses if action is not None)


def still_free(gpu: GpuSnapshot, device: Device, vm_id: str) -> bool:
    """Whether it can be made there now, or is there and this VM's."""
    return ATTACHMENTS[device.kind].still_free(gpu, device, vm_id)


def observed_on(gpu: GpuSnapshot) -> Iterator[ObservedDevice]:
    """Every device that exists on the GPU, whoever made it."""
    for attachment in ATTACHMENTS.values():
        yield from attachment.observed(gpu)


def changes_gpu(device: Device) -> bool:
    """Whether the GPU itself is another one while a VM has the device: its mode, its driver, its instances."""
    return device.leaves_mig or device.placement_id is not None or ATTACHMENTS[device.kind].changes_gpu


def hostdev(device: Device) -> Element:
    """The domain's ``<hostdev>``."""
    return ATTACHMENTS[device.kind].hostdev(device)
