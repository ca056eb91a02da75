# SPDX-License-Identifier: Apache-2.0
"""Whole GPUs: vfio-pci has the GPU while the VM runs, and the guest's own driver drives it."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree as ET

from orchestrator.core.actions.fabric import ActivateFabricPartition
from orchestrator.core.actions.host_actions import BindVfio, HostAction
from orchestrator.core.attachments.functions import Attachment, pci_source
from orchestrator.core.errors import Bug
from orchestrator.core.gpu.device import Device, ObservedDevice
from orchestrator.core.hosts.snapshot import GpuSnapshot


def whole_gpu(address: str, model: str) -> Device:
    return Device(kind="passthrough", gpu=address, parent=address, type_name=model, name=address)


def _draw(gpu: GpuSnapshot, type_name: str, _taken: frozenset[str], _new_uuid: str) -> Device | None:
    raise Bug("gpu.no_framework", f"{type_name} was to be made on GPU {gpu.address}, which vfio-pci has")


def _make(vm_id: str, device: Device) -> tuple[HostAction, ...]:
    """With the last GPU of a set that is a fabric partition, the whole set is joined."""
    bound = BindVfio(vm=vm_id, gpu=device.gpu, model=device.type_name)
    place = device.fabric
    if place is None:
        return (bound,)
    joined = ActivateFabricPartition(
        vm=vm_id, partition=place.partition, modules=place.modules, gpus=place.gpus
    )  # fmt: skip
    return (bound, joined)


def _still_free(gpu: GpuSnapshot, device: Device, vm_id: str) -> bool:
    return all(observed.owner == vm_id for observed in _observed(gpu) if observed.device.name == device.name)


def _observed(gpu: GpuSnapshot) -> Iterator[ObservedDevice]:
    for parent in gpu.parents:
        if not parent.is_vf and parent.current_type is not None:
            device = whole_gpu(gpu.address, parent.current_type)
            yield ObservedDevice(device=device, owner=parent.owner, in_use=parent.in_use is not False)


def _hostdev(device: Device) -> ET.Element:
    """The agent binds and unbinds, not libvirt: it knows what the host had before. Compute boards boot nothing from
    their ROM, and reading it can hang a GPU that was reset."""
    element = ET.Element("hostdev", mode="subsystem", type="pci", managed="no")
    ET.SubElement(element, "driver", name="vfio")
    element.append(pci_source(device.parent))
    ET.SubElement(element, "rom", bar="off")
    return element


ATTACHMENT = Attachment(
    draw=_draw, make=_make, still_free=_still_free, observed=_observed, hostdev=_hostdev, changes_gpu=True
)
