# SPDX-License-Identifier: Apache-2.0
"""Mediated devices: on the GPU itself (before SR-IOV) or one on each virtual function."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from orchestrator.core.attachments.attachment import Attachment
from orchestrator.core.attachments.functions import first_free
from orchestrator.core.host_actions import CreateMdev, HostAction
from orchestrator.core.snapshot import GpuSnapshot
from orchestrator.core.vm import Device


def _draw(gpu: GpuSnapshot, type_name: str, taken: frozenset[str], new_uuid: str) -> Device | None:
    own = next((parent for parent in gpu.parents if not parent.is_vf), None)
    parent = own or first_free([p for p in gpu.parents if not p.mdevs], type_name, taken)
    if parent is None:
        return None
    return Device(kind="mdev", gpu=gpu.address, parent=parent.address, type_name=type_name, mdev_uuid=new_uuid)


def _create(vm: str, device: Device) -> HostAction:
    return CreateMdev(vm=vm, uuid=_uuid(device), parent=device.parent, type_name=device.type_name)


def _still_free(gpu: GpuSnapshot, device: Device, vm: str) -> bool:
    parent = next((p for p in gpu.parents if p.address == device.parent), None)
    if parent is None:
        return False
    return not parent.is_vf or all(mdev.owner == vm for mdev in parent.mdevs)


def _hostdev(device: Device) -> ET.Element:
    element = ET.Element("hostdev", mode="subsystem", type="mdev", managed="no", model="vfio-pci", display="off")
    ET.SubElement(ET.SubElement(element, "source"), "address", uuid=_uuid(device))
    return element


def _uuid(device: Device) -> str:
    if device.mdev_uuid is None:
        raise ValueError("an mdev has a UUID")
    return device.mdev_uuid


ATTACHMENT = Attachment(draw=_draw, create=_create, still_free=_still_free, hostdev=_hostdev)
