# SPDX-License-Identifier: Apache-2.0
"""How a device reaches a VM: one file per kind, all of them the same few pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from orchestrator.core.attachments import mdev, vendor_vfio
from orchestrator.core.attachments.attachment import Attachment
from orchestrator.core.device import Device, DeviceKind, ObservedDevice
from orchestrator.core.errors import Bug
from orchestrator.core.host_actions import HostAction
from orchestrator.core.snapshot import GpuSnapshot

ATTACHMENTS: dict[DeviceKind, Attachment] = {"mdev": mdev.ATTACHMENT, "vendor_vfio": vendor_vfio.ATTACHMENT}


def draw(gpu: GpuSnapshot, type_name: str, *, taken: frozenset[str], new_uuid: str) -> Device | None:
    """The device a VM shall have on this GPU; None when no function of the GPU is free.

    ``taken``: functions that other VMs have claimed, running or not. ``new_uuid``: for a kind that names its devices.

    :raises Bug: ``gpu.no_framework`` when the driver offers no vGPUs on it; placement must not choose it
    """
    if gpu.framework == "none":
        raise Bug("gpu.no_framework", f"GPU {gpu.address} was chosen and offers no vGPUs")
    return ATTACHMENTS[gpu.framework].draw(gpu, type_name, taken, new_uuid)


def make(vm_id: str, device: Device) -> tuple[HostAction, ...]:
    """The actions that make it, in order."""
    return ATTACHMENTS[device.kind].make(vm_id, device)


def remove(vm_id: str, device: Device) -> tuple[HostAction, ...]:
    """The actions that remove it, in order."""
    inverses = (action.inverse() for action in reversed(make(vm_id, device)))
    return tuple(action for action in inverses if action is not None)


def still_free(gpu: GpuSnapshot, device: Device, vm_id: str) -> bool:
    """Whether it can be made there now, or is there and this VM's."""
    return ATTACHMENTS[device.kind].still_free(gpu, device, vm_id)


def observed_on(gpu: GpuSnapshot) -> Iterator[ObservedDevice]:
    """Every device that exists on the GPU, whoever made it."""
    for attachment in ATTACHMENTS.values():
        yield from attachment.observed(gpu)


def hostdev(device: Device) -> Element:
    """The domain's ``<hostdev>``."""
    return ATTACHMENTS[device.kind].hostdev(device)
