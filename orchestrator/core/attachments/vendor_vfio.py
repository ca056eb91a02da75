# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's vendor-specific VFIO: a virtual function is given a vGPU type and passed through as it is."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree as ET

from orchestrator.core.attachments.attachment import Attachment
from orchestrator.core.attachments.functions import first_free
from orchestrator.core.device import Device, ObservedDevice
from orchestrator.core.host_actions import HostAction, SetVgpuType
from orchestrator.core.pci import split_pci_address
from orchestrator.core.snapshot import GpuSnapshot


def _draw(gpu: GpuSnapshot, type_name: str, taken: frozenset[str], _new_uuid: str) -> Device | None:
    free = [parent for parent in gpu.parents if parent.is_vf and parent.current_type is None]
    parent = first_free(free, type_name, taken)
    if parent is None:
        return None
    return _device(gpu, parent.address, type_name)


def _device(gpu: GpuSnapshot, function: str, type_name: str) -> Device:
    return Device(kind="vendor_vfio", gpu=gpu.address, parent=function, type_name=type_name, name=function)


def _make(vm_id: str, device: Device) -> tuple[HostAction, ...]:
    return (SetVgpuType(vm=vm_id, vf=device.parent, type_name=device.type_name),)


def _still_free(gpu: GpuSnapshot, device: Device, vm_id: str) -> bool:
    parent = next((p for p in gpu.parents if p.address == device.parent), None)
    return parent is not None and (parent.current_type is None or parent.owner == vm_id)


def _observed(gpu: GpuSnapshot) -> Iterator[ObservedDevice]:
    for parent in gpu.parents:
        if parent.current_type is not None:
            device = _device(gpu, parent.address, parent.current_type)
            yield ObservedDevice(device=device, owner=parent.owner, in_use=parent.in_use is not False)


def _hostdev(device: Device) -> ET.Element:
    # managed='yes' would bind the function to vfio-pci and with that destroy the vGPU.
    element = ET.Element("hostdev", mode="subsystem", type="pci", managed="no")
    domain, bus, slot, function = split_pci_address(device.parent)
    ET.SubElement(
        ET.SubElement(element, "source"),
        "address",
        domain=f"0x{domain:04x}",
        bus=f"0x{bus:02x}",
        slot=f"0x{slot:02x}",
        function=f"0x{function:x}",
    )
    return element


ATTACHMENT = Attachment(draw=_draw, make=_make, still_free=_still_free, observed=_observed, hostdev=_hostdev)
