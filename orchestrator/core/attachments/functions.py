# SPDX-License-Identifier: Apache-2.0
"""What kinds on PCI functions share: choosing one to make a vGPU on, what makes it, naming one in a domain."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as ET

from orchestrator.core.actions.host_actions import HostAction, MakeVgpu, SetMigMode, VgpuPosition
from orchestrator.core.actions.vgpu_settings import SetVgpuParameters, settings_for
from orchestrator.core.gpu.device import Device
from orchestrator.core.gpu.pci import split_pci_address
from orchestrator.core.hosts.snapshot import GpuSnapshot, VgpuParent


def first_free(parents: Sequence[VgpuParent], type_name: str, taken: frozenset[str]) -> VgpuParent | None:
    """The lowest address nobody has claimed, preferring those whose driver says it takes the type now.

    The driver's list may be older than the claims, so a function without the type is still a candidate:
    the driver has the last word when the vGPU is made.
    """
    free = sorted((p for p in parents if p.address not in taken), key=lambda p: p.address)
    return next((p for p in free if type_name in p.creatable), free[0] if free else None)


def observed_place(gpu: GpuSnapshot, placement_id: int | None) -> int | None:
    """Drivers tell places on GPUs with vGPUs of one size as well, where nobody chose them and none matters."""
    return placement_id if gpu.heterogeneous else None


def _prepared(vm_id: str, device: Device) -> tuple[HostAction, ...]:
    """What makes the GPU ready for a time-sliced vGPU: before it is there, for afterwards the driver refuses."""
    left = (SetMigMode(gpu=device.gpu, on=False),) if device.leaves_mig else ()
    return (*left, *settings_for(vm_id, device))


def with_parameters(vm_id: str, device: Device) -> tuple[HostAction, ...]:
    """What sets the vGPU's parameters: once it is there, for they go with it."""
    wanted = device.parameters
    if wanted is None:
        return ()
    return (SetVgpuParameters(vm=vm_id, parent=device.parent, name=device.name, parameters=wanted),)


def made(vm_id: str, device: Device) -> tuple[HostAction, ...]:
    """A time-sliced vGPU with the settings of its GPU before it and its own after it."""
    start = device.placement_id
    at = None if start is None else VgpuPosition(within="gpu", start=start)
    return (*_prepared(vm_id, device), made_at(vm_id, device, at), *with_parameters(vm_id, device))


def made_at(vm_id: str, device: Device, at: VgpuPosition | None) -> MakeVgpu:
    """``at``: None: wherever the driver puts it."""
    uuid = None if device.name == device.parent else device.name
    return MakeVgpu(vm=vm_id, parent=device.parent, type_name=device.type_name, uuid=uuid, at=at)


def pci_source(address: str) -> ET.Element:
    domain, bus, slot, function = split_pci_address(address)
    source = ET.Element("source")
    ET.SubElement(
        source,
        "address",
        domain=f"0x{domain:04x}",
        bus=f"0x{bus:02x}",
        slot=f"0x{slot:02x}",
        function=f"0x{function:x}",
    )
    return source
