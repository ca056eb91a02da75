# SPDX-License-Identifier: Apache-2.0
"""What every attachment kind provides, and what those on PCI functions share: choosing one, what makes a vGPU on it,
naming it in a domain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

from orchestrator.core.actions.host_actions import HostAction, MakeVgpu, SetMigMode, VgpuPosition
from orchestrator.core.actions.vgpu_settings import SetVgpuParameters, settings_for
from orchestrator.core.gpu.device import Device, ObservedDevice, VgpuParent
from orchestrator.core.gpu.pci import split_pci_address
from orchestrator.core.hosts.snapshot import GpuSnapshot


@dataclass(frozen=True, kw_only=True)
class Attachment:
    """Pure functions of one kind."""

    draw: Callable[[GpuSnapshot, str, frozenset[str], str], Device | None]
    """(GPU, vGPU type, functions taken by claims, fresh UUID) → the device to make."""
    make: Callable[[str, Device], tuple[HostAction, ...]]
    """(VM id, device) → the actions that make it, in order; their inverses backwards remove it."""
    still_free: Callable[[GpuSnapshot, Device, str], bool]
    """(GPU, device, VM id): whether it can be made there now, or is there and ours."""
    observed: Callable[[GpuSnapshot], Iterator[ObservedDevice]]
    """Devices of the kind that exist on the GPU."""
    hostdev: Callable[[Device], Element]
    """The domain's ``<hostdev>``."""
    changes_gpu: bool = False
    """Whether the GPU itself is another one while a VM has such a device: its mode, its driver, its instances."""


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
