# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's vendor-specific VFIO: a virtual function is given a vGPU type and passed through as it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from xml.etree import ElementTree as ET

from orchestrator.core.attachments.functions import (
    Attachment,
    first_free,
    made,
    observed_place,
    pci_source,
)
from orchestrator.core.gpu.device import Device, ObservedDevice
from orchestrator.core.hosts.snapshot import GpuSnapshot


def _draw(gpu: GpuSnapshot, type_name: str, taken: frozenset[str], _new_uuid: str) -> Device | None:
    free = [parent for parent in gpu.parents if parent.is_vf and parent.current_type is None]
    parent = first_free(free, type_name, taken)
    if parent is None:
        return None
    return replace(_device(gpu, parent.address, type_name), leaves_mig=gpu.mig_enabled is True)


def _device(gpu: GpuSnapshot, function: str, type_name: str) -> Device:
    return Device(kind="vendor_vfio", gpu=gpu.address, parent=function, type_name=type_name, name=function)


def _still_free(gpu: GpuSnapshot, device: Device, vm_id: str) -> bool:
    parent = next((p for p in gpu.parents if p.address == device.parent), None)
    return parent is not None and (parent.current_type is None or parent.owner == vm_id)


def _observed(gpu: GpuSnapshot) -> Iterator[ObservedDevice]:
    return iter(()) if gpu.mig_enabled else typed(gpu)


def typed(gpu: GpuSnapshot) -> Iterator[ObservedDevice]:
    """Every virtual function with a type on it, in any mode."""
    for parent in gpu.parents:
        if parent.is_vf and parent.current_type is not None:
            device = _device(gpu, parent.address, parent.current_type)
            device = replace(device, placement_id=observed_place(gpu, parent.placement_id))
            yield ObservedDevice(device=device, owner=parent.owner, in_use=parent.in_use is not False)


def _hostdev(device: Device) -> ET.Element:
    # managed='yes' would bind the function to vfio-pci and with that destroy the vGPU.
    element = ET.Element("hostdev", mode="subsystem", type="pci", managed="no")
    element.append(pci_source(device.parent))
    return element


ATTACHMENT = Attachment(draw=_draw, make=made, still_free=_still_free, observed=_observed, hostdev=_hostdev)
