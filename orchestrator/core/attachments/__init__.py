# SPDX-License-Identifier: Apache-2.0
"""How a device reaches a VM: one file per kind, all of them the same few pure functions."""

from __future__ import annotations

from orchestrator.core.attachments import mdev, vendor_vfio
from orchestrator.core.attachments.attachment import Attachment
from orchestrator.core.errors import Bug
from orchestrator.core.snapshot import GpuSnapshot
from orchestrator.core.vm import Device

_BY_FRAMEWORK: dict[str, Attachment] = {"mdev": mdev.ATTACHMENT, "vendor_vfio": vendor_vfio.ATTACHMENT}


def attachment_of(device: Device) -> Attachment:
    """The functions for a drawn device."""
    return _BY_FRAMEWORK[device.kind]


def draw(gpu: GpuSnapshot, type_name: str, *, taken: frozenset[str], new_uuid: str) -> Device | None:
    """The device a VM shall have on this GPU; None when no function of the GPU is free.

    ``taken``: functions that other VMs have claimed, running or not. ``new_uuid`` names an mdev.

    :raises Bug: ``gpu.no_framework`` when the driver offers no vGPUs on it; placement must not choose it
    """
    attachment = _BY_FRAMEWORK.get(gpu.framework)
    if attachment is None:
        raise Bug("gpu.no_framework", f"GPU {gpu.address} was chosen and offers no vGPUs")
    return attachment.draw(gpu, type_name, taken, new_uuid)


def exclusive_function(device: Device) -> str | None:
    """The virtual function that is the device's alone; None when it shares the GPU's own function."""
    return device.parent if device.parent != device.gpu else None
