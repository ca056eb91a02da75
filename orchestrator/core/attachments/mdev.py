# SPDX-License-Identifier: Apache-2.0
"""Mediated devices: on the GPU itself (before SR-IOV) or one on each virtual function."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from xml.etree import ElementTree as ET

from orchestrator.core.attachments.functions import (
    Attachment,
    first_free,
    made,
    observed_place,
)
from orchestrator.core.gpu.device import Device, ObservedDevice
from orchestrator.core.hosts.snapshot import GpuSnapshot


def _draw(gpu: GpuSnapshot, type_name: str, taken: frozenset[str], new_uuid: str) -> Device | None:
    own = next((parent for parent in gpu.parents if not parent.is_vf), None)
    parent = own or first_free([p for p in gpu.parents if not p.mdevs], type_name, taken)
    if parent is None:
        return None
    return Device(
        kind="mdev", gpu=gpu.address, parent=parent.address, type_name=type_name, name=new_uuid,
        leaves_mig=gpu.mig_enabled is True,
    )  # fmt: skip


def _still_free(gpu: GpuSnapshot, device: Device, vm_id: str) -> bool:
    parent = next((p for p in gpu.parents if p.address == device.parent), None)
    if parent is None:
        return False
    return not parent.is_vf or all(mdev.owner == vm_id for mdev in parent.mdevs)


def _observed(gpu: GpuSnapshot) -> Iterator[ObservedDevice]:
    return iter(()) if gpu.mig_enabled else mediated(gpu)


def mediated(gpu: GpuSnapshot) -> Iterator[ObservedDevice]:
    """Every mediated device, in any mode. One among several on a GPU: which of them a process holds, only the agent can
    tell when it removes it."""
    for parent in gpu.parents:
        for mdev in parent.mdevs:
            device = Device(
                kind="mdev", gpu=gpu.address, parent=parent.address, type_name=mdev.type_name, name=mdev.uuid
            )
            device = replace(device, placement_id=observed_place(gpu, mdev.placement_id))
            yield ObservedDevice(device=device, owner=mdev.owner, in_use=False)


def _hostdev(device: Device) -> ET.Element:
    element = ET.Element("hostdev", mode="subsystem", type="mdev", managed="no", model="vfio-pci", display="off")
    ET.SubElement(ET.SubElement(element, "source"), "address", uuid=device.name)
    return element


ATTACHMENT = Attachment(draw=_draw, make=made, still_free=_still_free, observed=_observed, hostdev=_hostdev)
