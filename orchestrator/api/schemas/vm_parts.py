# SPDX-License-Identifier: Apache-2.0
"""Bodies about what a VM has: its devices, its network cards; and about what is going to be done to it."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime

from pydantic import Field

from orchestrator.api.schemas.base import AnswerBody, CopiedAnswer, Moment, moment
from orchestrator.catalogue.described import StrictForm
from orchestrator.catalogue.quota_names import models_of
from orchestrator.core.domain_xml.interface import mac_address
from orchestrator.core.gpu.device import Device, DeviceKind
from orchestrator.core.hosts.domain import DiskLimits
from orchestrator.core.hosts.nic import NicPlace
from orchestrator.core.vms.disk_snapshot import DiskSnapshot
from orchestrator.core.vms.network import short_name, tenant_of
from orchestrator.core.vms.vm import Vm
from orchestrator.core.vms.volume import short_of
from orchestrator.services.maintenance.waits import PlannedMaintenance


class DeviceAnswer(AnswerBody):
    """A vGPU of a VM; it exists on the host while the VM runs."""

    kind: DeviceKind
    """Which kind of thing this is."""
    gpu: str | None
    """PCI address of the GPU; null for a tenant."""
    parent: str | None
    """PCI address of the function it is made on; null for a tenant."""
    type_name: str
    """vGPU type as NVIDIA calls it; null: it is no vGPU."""
    gpu_model: str | None
    """Of a whole GPU; null: it is a vGPU."""
    mdev_uuid: str | None
    """Its UUID; null: the function itself is passed through."""


class NetworkCardAnswer(AnswerBody):
    """A network card of a VM."""

    mac: str
    """Its hardware address, the same for the VM's life."""
    network: str
    """Name of the network that it is on."""
    network_tenant: str | None
    """Whose the network is; null: the site's."""
    address: str | None
    """IPv4, the same for the VM's life; null: its network is not of kind ovn, or has IPv6 alone."""
    address6: str | None
    """IPv6, the same for the VM's life; null: its network is not of kind ovn, or had no such subnet."""


class NicFunctionAnswer(AnswerBody):
    """A virtual function of a network card that a VM has."""

    mac: str
    """Its hardware address where the card's driver lets somebody set it; stays the VM's."""
    under_switch: bool
    """Under one PCIe switch with a GPU of the VM; else on its NUMA node."""
    card: str | None
    """PCI address of the card; null for a tenant."""
    function: str | None
    """PCI address; null for a tenant."""


class DiskLimitsAnswer(CopiedAnswer, copies=DiskLimits):
    """What a disk may do in a second, reads and writes together; 0: as much as it can."""


class DiskSnapshotAnswer(AnswerBody, copies=DiskSnapshot):
    """What was on a VM's disk at one moment."""

    created_at: datetime
    volumes: tuple[str, ...]
    """Data volumes that were copied at the same moment; each has a snapshot of that name."""


def snapshot_members(snapshot: DiskSnapshot) -> dict[str, object]:
    """Of a :class:`DiskSnapshotAnswer`."""
    names = tuple(map(short_of, snapshot.volumes))
    return asdict(snapshot) | {"created_at": moment(snapshot.created_at), "volumes": names}


class ChooseMaintenanceBody(StrictForm, example={"at": "2026-12-01T22:00Z"}):
    """From when on a VM may be stopped for maintenance of its host."""

    at: str | None = Field(default=None, max_length=40)
    """Like 2026-12-01T22:00Z; null: now."""


class PlannedMaintenanceAnswer(CopiedAnswer, copies=PlannedMaintenance):
    """Of its host; it will stop the VM, and start it again."""

    opens_at: Moment | None
    began_at: Moment | None
    ends_by: Moment | None


def maintenance_members(planned: PlannedMaintenance) -> dict[str, object]:
    """Of a :class:`PlannedMaintenanceAnswer`."""
    return PlannedMaintenanceAnswer.of(planned).model_dump()


def card_members(vm: Vm) -> list[dict[str, object]]:
    """One that was adopted has those that it came with, which nobody told us."""
    networks = vm.spec.networks if vm.spec.adopted is None else ()
    own = {(port.network, ":" in port.address): port.address for port in vm.ports}
    return [
        {
            "mac": mac_address(vm.id, card),
            "network": short_name(name),
            "network_tenant": tenant_of(name),
            "address": own.get((name, False)),
            "address6": own.get((name, True)),
        }
        for card, name in enumerate(networks)
    ]


def nic_members(nic: NicPlace | None, *, watching: bool) -> dict[str, object] | None:
    if nic is None:
        return None
    where = {"card": nic.card, "function": nic.function} if watching else {"card": None, "function": None}
    return {"mac": nic.mac, "under_switch": nic.under_switch, **where}


def device_members(device: Device, *, watching: bool) -> dict[str, object]:
    return {
        "kind": device.kind,
        "gpu": device.gpu if watching else None,
        "parent": device.parent if watching else None,
        "type_name": device.type_name,
        "gpu_model": models_of(device.type_name) if device.is_whole_gpu else None,
        "mdev_uuid": device.name if device.name != device.parent else None,
    }
