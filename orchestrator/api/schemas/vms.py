# SPDX-License-Identifier: Apache-2.0
"""Bodies about VMs."""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import datetime
from sys import getsizeof
from typing import Annotated, Final

from pydantic import Field
from pydantic_core import to_json

from orchestrator.api.schemas.base import MAX_NAME, AnswerBody, LabelValue, Name, moment, moment_or_none
from orchestrator.api.schemas.guests import Roles, Secrets, Settings
from orchestrator.api.schemas.vm_parts import (
    DeviceAnswer,
    DiskLimitsAnswer,
    DiskSnapshotAnswer,
    NetworkCardAnswer,
    NicFunctionAnswer,
    PlannedMaintenanceAnswer,
    card_members,
    device_members,
    maintenance_members,
    nic_members,
    snapshot_members,
)
from orchestrator.catalogue.described import StrictForm
from orchestrator.core.byte_cache import ByteCache
from orchestrator.core.hosts.domain import BootPolicy
from orchestrator.core.hosts.pool import short_of as short_of_pool
from orchestrator.core.labels import MAX_LABELS
from orchestrator.core.names import NAME_PATTERN
from orchestrator.core.units import MIB
from orchestrator.core.vms.backup import SHORTEST_ID
from orchestrator.core.vms.image import short_of
from orchestrator.core.vms.lease import MAX_LEASE_S, WantedEnd, parse_moment
from orchestrator.core.vms.network import MAX_CARDS, short_name, tenant_of
from orchestrator.core.vms.priority import Priority
from orchestrator.core.vms.vm import (
    MAX_DISK_BYTES,
    MAX_MEMORY_MIB,
    MAX_USER_DATA_BYTES,
    MAX_VCPUS,
    MIN_DISK_BYTES,
    MIN_MEMORY_MIB,
    DeallocationReason,
    Vm,
    VmSpec,
    VmState,
)
from orchestrator.core.vms.volume import MAX_ATTACHED, attached_names
from orchestrator.core.wire import action_to_dict
from orchestrator.services.maintenance.waits import PlannedMaintenance
from orchestrator.services.messages import AdoptVm, CreateVm, DryRun, VmChange

MAX_SSH_KEYS = 64
_AttachedName = Annotated[str, Field(max_length=MAX_NAME, json_schema_extra={"pattern": f"^{NAME_PATTERN}(:ro)?$"})]


LeaseSeconds = Annotated[
    int | None, Field(ge=1, le=MAX_LEASE_S, description="How long it has its place, in seconds from now")
]
Until = Annotated[
    str | None,
    Field(
        max_length=40,
        description="Or when it gives its place back, like 2026-12-01T10:00Z",
        json_schema_extra={"format": "date-time"},
    ),
]


def wanted_end(lease_s: int | None, until: str | None) -> WantedEnd:
    """:raises InvalidInput: ``until.invalid``"""
    return WantedEnd(after_s=lease_s, at=None if until is None else parse_moment(until, field="until"))


class CreateVmBody(
    StrictForm,
    copies=CreateVm,
    without={"end", "boot_timeout_s"},
    defaults=True,
    example={
        "name": "train",
        "profile": "NVIDIA L40S-12Q",
        "image": "debian-13",
        "vcpus": 4,
        "memory_mib": 8192,
        "disk_bytes": 21474836480,
        "ssh_keys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEXAMPLE me@desk"],
    },
):
    """A wanted VM. The same name and values again mean the same VM."""

    name: Name
    tenant: Name = "default"
    profile: str = Field(max_length=MAX_NAME)
    image: str = Field(max_length=MAX_NAME)
    """Base image of the tenant or the site; ``tenant/name``: one that another tenant shares."""
    vcpus: int | None = Field(default=None, ge=1, le=MAX_VCPUS)
    """Virtual CPUs; null: as its profile says."""
    memory_mib: int | None = Field(default=None, ge=MIN_MEMORY_MIB, le=MAX_MEMORY_MIB)
    """Memory, in MiB; null: as its profile says."""
    disk_bytes: int | None = Field(default=None, ge=MIN_DISK_BYTES, le=MAX_DISK_BYTES)
    """Size of its disk, in bytes; null: as its profile says."""
    network: Name = "default"
    """Name of the network that it is on."""
    more_networks: tuple[Name, ...] = Field(default=(), max_length=MAX_CARDS - 1, strict=False)
    """Networks of further network cards, in order."""
    addresses: dict[Name, Annotated[str, Field(max_length=64)]] = Field(default={}, max_length=MAX_CARDS)
    """Address of its card on a network of kind ovn, by the network's name; IPv4, IPv6 or ``IPV4,IPV6``."""
    volumes: tuple[_AttachedName, ...] = Field(default=(), max_length=MAX_ATTACHED, strict=False)
    """Data volumes of the tenant, in this order; name:ro of one that it reads, as several VMs may."""
    pool: Name | None = None
    """Where its disk lies; null: on its host's own."""
    from_snapshot: str | None = Field(default=None, max_length=2 * MAX_NAME + 1)
    """``VM/SNAPSHOT``: its disk is a copy of it, on the same host and image, and at least as large."""
    from_backup: str | None = Field(default=None, min_length=SHORTEST_ID, max_length=36)
    """Id of a backup of the tenant, or how that begins: its disk is what that holds, and at least as large."""
    ssh_keys: tuple[Annotated[str, Field(max_length=16384)], ...] = Field(
        default=(), max_length=MAX_SSH_KEYS, strict=False
    )
    user_data: str | None = Field(default=None, max_length=MAX_USER_DATA_BYTES)
    """For cloud-init; kept secret."""
    host: Name | None = None
    gpu: str | None = Field(default=None, max_length=20)
    priority: Priority = "normal"
    """At most what the tenant's policy allows."""
    label: Name | None = None
    labels: dict[str, LabelValue] = Field(default={}, max_length=MAX_LABELS)
    lease_s: LeaseSeconds = None
    until: Until = None
    provision: Roles = Field(default=())
    provision_settings: Settings = Field(default={})
    provision_secrets: Secrets = Field(default={}, repr=False)

    def to_request(self) -> CreateVm:
        values = {name: getattr(self, name) for name in type(self).model_fields if name not in {"lease_s", "until"}}
        sizes = {name: values[name] or 0 for name in ("vcpus", "memory_mib", "disk_bytes")}
        return CreateVm(**values | sizes, end=wanted_end(self.lease_s, self.until))


class ChangeVmBody(StrictForm, example={"labels": {"team": "vision"}}):
    """New labels of a VM, and whether it is protected; what is not named stays."""

    copied_from = (VmChange,)

    labels: dict[str, LabelValue | None] = Field(default={}, max_length=64)
    protected: bool | None = None
    """Whether it is refused to delete it until this is taken back; null: as it is."""

    def to_request(self) -> VmChange:
        return VmChange(labels=self.labels, protected=self.protected)


class ExtendLeaseBody(StrictForm, example={"lease_s": 14400}):
    """A later end of a VM's lease: after some seconds from now, or at a moment."""

    lease_s: LeaseSeconds = None
    until: Until = None

    def to_request(self) -> WantedEnd:
        return wanted_end(self.lease_s, self.until)


class RenameVmBody(StrictForm, example={"name": "train-2"}):
    """Another name for a VM."""

    name: Name
    """No other VM of the tenant has it."""


class AdoptVmBody(StrictForm, example={"host": "gpu-1", "domain": "byhand", "tenant": "research", "name": "train"}):
    """A libvirt domain that somebody else made, with one vGPU on a GPU of ours."""

    copied_from = (AdoptVm,)

    host: Name
    domain: str = Field(min_length=1, max_length=MAX_NAME)
    tenant: Name = "default"
    name: Name | None = None
    """Name of the VM; as the domain's when left out."""
    boot_policy: BootPolicy = "local"
    although_managed_by: str | None = Field(default=None, min_length=1, max_length=MAX_NAME)

    def to_request(self) -> AdoptVm:
        return AdoptVm(**self.model_dump())


class VmAnswer(AnswerBody, copies=VmSpec, without={"gpu", "start", "user_data", "volume_limits"}):
    """A VM. ``state`` is what the database says; while its host does not answer, nobody knows better."""

    copied_from = (Vm,)

    id: str
    state: VmState
    host: str | None
    """Null for a tenant."""
    device: DeviceAnswer
    """The first of ``devices``."""
    devices: tuple[DeviceAnswer, ...]
    """The pieces of GPUs that it has."""
    addresses: tuple[str, ...]
    """IP addresses that the guest was seen with."""
    floating_addresses: tuple[str, ...]
    """IPv4 addresses of provider networks that lead to it from outside."""
    image: str
    """Name of the image that its disk was made from."""
    vcpus: int
    """Virtual CPUs."""
    network: str
    """Name of the network that it is on."""
    network_tenant: str | None
    """Whose the network is; null: the site's."""
    more_networks: tuple[str, ...]
    """Networks of its further network cards, in their order."""
    cards: tuple[NetworkCardAnswer, ...]
    """Its network cards, in the order in which the guest sees them."""
    volumes: tuple[str, ...]
    """Data volumes that it has, in this order; name:ro of one that it reads."""
    pool: str | None
    """Name of the pool that its disk lies in; null: it is on its host's own."""
    disk_limits: DiskLimitsAnswer | None
    nic_function: NicFunctionAnswer | None
    """Of a network card of its host; null: it has none."""
    has_user_data: bool
    """Whether cloud-init got data, which stays secret."""
    label: str | None
    """Of the file for apply that made it."""
    labels: dict[str, str]
    """Values by key."""
    operation: str | None
    """Id of the operation that works on it; null: none."""
    unknown_since: datetime | None
    """Since when its host has not been seen, so that ``state`` is only what it was; null: it is seen."""
    created_at: datetime
    lease_end: datetime | None
    deallocated: DeallocationReason | None
    snapshots: tuple[DiskSnapshotAnswer, ...]
    suspended_bytes: int | None
    """What is held of its host's disk for its memory and its devices' state; null: it is not suspended."""
    maintenance: PlannedMaintenanceAnswer | None
    """What its host has, or gets; null: nothing is planned."""
    gpu_fault: str | None
    """What is wrong with its GPU, for its user; null: nothing that is known."""

    @classmethod
    def of(
        cls, vm: Vm, unseen: Mapping[str, float | None], planned: PlannedMaintenance | None = None,
        fault: str | None = None, floating: tuple[str, ...] = (), *, watching: bool,
    ) -> VmAnswer:  # fmt: skip
        return cls.model_validate(vm_members(vm, unseen, planned, fault, floating, watching=watching))


def vm_json(
    vm: Vm, silent_since: float | None, planned: PlannedMaintenance | None = None, fault: str | None = None,
    floating: tuple[str, ...] = (), *, watching: bool,
) -> bytes:  # fmt: skip
    """A :class:`VmAnswer` as JSON, kept: of a long list hardly one VM has changed since it was told last.
    ``silent_since``: when its host was seen last, if that does not answer."""
    circumstances = silent_since, planned, fault, floating
    kept = _TOLD.get((vm.id, watching))
    if kept is not None and kept[0] is vm and kept[1] == circumstances:  # VMs that differ in labels alone are equal
        return kept[2]
    text = to_json(vm_members(vm, {vm.host: silent_since}, planned, fault, floating, watching=watching))
    size = 1024 + len(text) + getsizeof(vm.spec.user_data)
    _TOLD.put((vm.id, watching), (vm, circumstances, text), size)
    return text


_Circumstances = tuple[float | None, PlannedMaintenance | None, str | None, tuple[str, ...]]
_TOLD: Final = ByteCache[tuple[Vm, _Circumstances, bytes]](128 * MIB)
"""What was told of a VM last. Enough for 20,000 of the usual size."""


def vm_members(
    vm: Vm, unseen: Mapping[str, float | None], planned: PlannedMaintenance | None = None, fault: str | None = None,
    floating: tuple[str, ...] = (), *, watching: bool,
) -> dict[str, object]:  # fmt: skip
    """Of a :class:`VmAnswer`. ``unseen``: hosts that do not answer.
    ``watching``: the reader may know of hosts and GPUs."""
    spec, devices = vm.spec, [device_members(device, watching=watching) for device in vm.devices]
    members = {
        **{name: getattr(spec, name) for name in _COPIED},
        **{name: getattr(vm, name) for name in _OF_VM},
        "host": vm.host if watching else None,
        "device": devices[0],
        "devices": devices,
        "image": short_of(spec.image, spec.tenant),
        "network": short_name(spec.network),
        "network_tenant": tenant_of(spec.network),
        "more_networks": [short_name(name) for name in spec.more_networks],
        "cards": card_members(vm),
        "volumes": attached_names(vm),
        "pool": None if spec.pool is None else short_of_pool(spec.pool),
        "disk_limits": None if spec.disk_limits is None else asdict(spec.disk_limits),
        "nic_function": nic_members(vm.nic, watching=watching),
        "has_user_data": spec.user_data is not None,
        "labels": dict(spec.labels),
        "unknown_since": moment_or_none(unseen.get(vm.host)),
        "created_at": moment(vm.created_at),
        "lease_end": moment_or_none(vm.lease_end),
        "maintenance": None if planned is None else maintenance_members(planned),
        "gpu_fault": fault,
        "floating_addresses": floating,
        "snapshots": [snapshot_members(snapshot) for snapshot in vm.snapshots],
    }
    return {name: members[name] for name in VmAnswer.model_fields}


_COPIED: Final = frozenset(VmAnswer.model_fields.keys() & {member.name for member in fields(VmSpec)})
_OF_VM: Final = ("id", "state", "addresses", "operation", "deallocated", "suspended_bytes")


class VmPlanAnswer(AnswerBody):
    """What create would do, to the last host action. Identifiers differ in a real run.

    A tenant gets one when it would fit, without where and how: hosts and GPUs are the operator's."""

    copied_from = (DryRun,)

    host: str | None
    """Null for a tenant."""
    gpu: str | None
    """PCI address of the first device's; null for a tenant."""
    gpus: tuple[str, ...]
    """Of each device in their order; none for a tenant."""
    why: str
    preempts: tuple[str, ...]
    moves: tuple[str, ...] = ()
    actions: tuple[dict[str, object], ...]
    """Host actions by name, with all their values; none for a tenant."""
    domain_xml: str | None
    """Null for a tenant."""
    provision: tuple[str, ...] = ()

    @classmethod
    def of(cls, plan: DryRun, tenants: Collection[str] | None) -> VmPlanAnswer:
        """``tenants``: whose things the caller may know of; None: everybody's."""
        if tenants is not None:
            return cls(
                host=None, gpu=None, gpus=(), why=FITS, preempts=named_for(tenants, plan.preempts),
                moves=named_for(tenants, plan.moves), actions=(), domain_xml=None, provision=plan.provision,
            )  # fmt: skip
        return cls(
            host=plan.host,
            gpu=plan.gpus[0],
            gpus=plan.gpus,
            why=plan.why,
            preempts=plan.preempts,
            moves=plan.moves,
            actions=tuple(action_to_dict(action) for action in plan.actions),
            domain_xml=plan.domain_xml,
            provision=plan.provision,
        )


class ConsoleLogAnswer(AnswerBody):
    """What a serial console wrote last."""

    content_base64: str
    """In base64, as guests print any bytes; empty: nothing was kept."""

    @classmethod
    def of(cls, content: bytes) -> ConsoleLogAnswer:
        return cls(content_base64=base64.b64encode(content).decode())


FITS = "there is a place for it"
OTHERS = "VMs of others"


def named_for(tenants: Collection[str] | None, vms: Sequence[str]) -> tuple[str, ...]:
    """``tenant/name`` of those it may know of, and once for all others that there are some; None: may know all."""
    known = tuple(name for name in vms if tenants is None or name.partition("/")[0] in tenants)
    return known if len(known) == len(vms) else (*known, OTHERS)
