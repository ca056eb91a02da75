# SPDX-License-Identifier: Apache-2.0
"""Bodies about VMs."""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from sys import getsizeof
from typing import Annotated, Final

from pydantic import ConfigDict, Field
from pydantic_core import to_json

from orchestrator.api.schemas.base import (
    MAX_NAME,
    AnswerBody,
    LabelValue,
    Name,
    RequestBody,
    moment,
    moment_or_none,
)
from orchestrator.api.schemas.guests import Roles, Secrets, Settings
from orchestrator.api.schemas.vm_parts import (
    CardAnswer,
    DeviceAnswer,
    NicFunctionAnswer,
    PlannedStopAnswer,
    card_members,
    device_members,
    nic_members,
)
from orchestrator.core.byte_cache import ByteCache
from orchestrator.core.hosts.domain import BootPolicy
from orchestrator.core.hosts.nic import NicKind
from orchestrator.core.labels import MAX_LABELS
from orchestrator.core.units import MIB
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
    VmState,
)
from orchestrator.core.vms.volume import MAX_ATTACHED, attached_names
from orchestrator.core.wire import action_to_dict
from orchestrator.services.drivers.upgrade_waits import PlannedStop
from orchestrator.services.messages import AdoptVm, CreateVm, DryRun, VmChange

MAX_SSH_KEYS = 64


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


NIC = "A virtual function of a network card near its GPU; null: what its profile says"


PROTECTED = "Whether it is refused to delete it until this is taken back"


class CreateVmBody(RequestBody):
    """A wanted VM. The same name and values again mean the same VM."""

    model_config = ConfigDict(
        title="CreateVm",
        json_schema_extra={
            "examples": [
                {
                    "name": "train",
                    "profile": "NVIDIA L40S-12Q",
                    "image": "debian-13",
                    "vcpus": 4,
                    "memory_mib": 8192,
                    "disk_bytes": 21474836480,
                    "ssh_keys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEXAMPLE me@desk"],
                }
            ]
        },
    )

    name: Name
    tenant: Name = "default"
    profile: str = Field(max_length=MAX_NAME, description="Offering, NVIDIA vGPU type, MIG profile or gpu:N")
    image: str = Field(
        max_length=MAX_NAME, description="Of the tenant or the site; ``tenant/name``: one that another tenant shares"
    )
    vcpus: int | None = Field(default=None, ge=1, le=MAX_VCPUS, description="Left out: as the profile says")
    memory_mib: int | None = Field(
        default=None, ge=MIN_MEMORY_MIB, le=MAX_MEMORY_MIB, description="Left out: as the profile says"
    )
    disk_bytes: int | None = Field(
        default=None, ge=MIN_DISK_BYTES, le=MAX_DISK_BYTES, description="Left out: as the profile says"
    )
    network: Name = "default"
    more_networks: tuple[Name, ...] = Field(
        default=(), max_length=MAX_CARDS - 1, strict=False, description="Networks of further network cards, in order"
    )
    volumes: tuple[Name, ...] = Field(
        default=(), max_length=MAX_ATTACHED, strict=False, description="Data volumes of the tenant, in this order"
    )
    nic: NicKind | None = Field(default=None, description=NIC)
    ssh_keys: tuple[Annotated[str, Field(max_length=16384)], ...] = Field(
        default=(), max_length=MAX_SSH_KEYS, strict=False, description="OpenSSH public key lines"
    )
    user_data: str | None = Field(
        default=None, max_length=MAX_USER_DATA_BYTES, description="For cloud-init; kept secret"
    )
    host: Name | None = Field(default=None, description="Only this host will do")
    gpu: str | None = Field(default=None, max_length=20, description="Only this GPU will do, by its PCI address")
    start: bool = True
    boot_policy: BootPolicy = Field(default="local", description="Who starts it again after a reboot of its host")
    priority: Priority = Field(default="normal", description="At most what the tenant's policy allows")
    preempt: bool = Field(
        default=False, description="When it does not fit, stop VMs of lower priority for it; they keep their disks"
    )
    label: Name | None = Field(default=None, description="Marks VMs that belong together in a file for apply")
    labels: dict[str, LabelValue] = Field(
        default={}, max_length=MAX_LABELS, description="Say nothing about what the VM is"
    )
    protected: bool = Field(default=False, description=PROTECTED)
    lease_s: LeaseSeconds = None
    until: Until = None
    provision: Roles = Field(default=())
    no_provision: bool = Field(default=False, description="Leave out the roles that its offering asks for")
    provision_settings: Settings = Field(default={})
    provision_secrets: Secrets = Field(default={}, repr=False)

    def to_request(self) -> CreateVm:
        """What the service takes."""
        values = {name: getattr(self, name) for name in type(self).model_fields if name not in {"lease_s", "until"}}
        sizes = {name: values[name] or 0 for name in ("vcpus", "memory_mib", "disk_bytes")}
        return CreateVm(**values | sizes, end=wanted_end(self.lease_s, self.until))


class ChangeVmBody(RequestBody):
    """New labels of a VM, and whether it is protected; what is not named stays."""

    model_config = ConfigDict(title="ChangeVm", json_schema_extra={"examples": [{"labels": {"team": "vision"}}]})

    labels: dict[str, LabelValue | None] = Field(default={}, max_length=64, description="By key; null takes one away")
    protected: bool | None = Field(default=None, description=f"{PROTECTED}; null: as it is")

    def to_request(self) -> VmChange:
        """What the service takes."""
        return VmChange(labels=self.labels, protected=self.protected)


class ExtendBody(RequestBody):
    """A later end of a VM's lease: after some seconds from now, or at a moment."""

    model_config = ConfigDict(title="ExtendLease", json_schema_extra={"examples": [{"lease_s": 14400}]})

    lease_s: LeaseSeconds = None
    until: Until = None

    def to_request(self) -> WantedEnd:
        """What the service takes."""
        return wanted_end(self.lease_s, self.until)


class RenameBody(RequestBody):
    """Another name for a VM."""

    model_config = ConfigDict(title="RenameVm", json_schema_extra={"examples": [{"name": "train-2"}]})

    name: Name = Field(description="No other VM of the tenant has it")


class AdoptVmBody(RequestBody):
    """A libvirt domain that somebody else made, with one vGPU on a GPU of ours."""

    model_config = ConfigDict(
        title="AdoptVm",
        json_schema_extra={"examples": [{"host": "gpu-1", "domain": "byhand", "tenant": "research", "name": "train"}]},
    )

    host: Name
    domain: str = Field(min_length=1, max_length=MAX_NAME, description="Name or UUID of the libvirt domain")
    tenant: Name = "default"
    name: Name | None = Field(default=None, description="Name of the VM; as the domain's when left out")
    boot_policy: BootPolicy = Field(default="local", description="Who starts it again after a reboot of its host")
    although_managed_by: str | None = Field(
        default=None, min_length=1, max_length=MAX_NAME, description="The other controller that it is taken from"
    )

    def to_request(self) -> AdoptVm:
        """What the service takes."""
        return AdoptVm(**self.model_dump())


class VmAnswer(AnswerBody):
    """A VM. ``state`` is what the database says; while its host does not answer, nobody knows better."""

    id: str
    name: str
    tenant: str
    state: VmState
    host: str | None = Field(description="Null for a tenant")
    profile: str
    device: DeviceAnswer = Field(description="The first of ``devices``")
    devices: tuple[DeviceAnswer, ...]
    addresses: tuple[str, ...]
    image: str
    vcpus: int
    memory_mib: int
    disk_bytes: int
    network: str
    network_tenant: str | None = Field(description="Whose the network is; null: the site's")
    more_networks: tuple[str, ...] = Field(description="Networks of its further network cards, in their order")
    cards: tuple[CardAnswer, ...] = Field(description="Its network cards, in the order in which the guest sees them")
    volumes: tuple[str, ...] = Field(description="Data volumes that it has, in this order")
    nic: NicKind | None = Field(description="Asked for with the VM; null: what its profile says")
    nic_function: NicFunctionAnswer | None = Field(description="Of a network card of its host; null: it has none")
    ssh_keys: tuple[str, ...]
    has_user_data: bool
    boot_policy: BootPolicy
    priority: Priority
    label: str | None = Field(description="Of the file for apply that made it")
    labels: dict[str, str]
    protected: bool = Field(description=PROTECTED)
    adopted: str | None = Field(description="Name of the domain that it was before it was adopted; null: we made it")
    operation: str | None
    unknown_since: datetime | None = Field(
        description="Since when its host has not been seen, so that ``state`` is only what it was; null: it is seen"
    )
    created_at: datetime
    lease_end: datetime | None = Field(description="When it is deallocated; null: never")
    deallocated: DeallocationReason | None = Field(
        description="Why it holds no claim on a GPU any more; starting it makes one on its host"
    )
    planned_stop: PlannedStopAnswer | None = Field(description="For a driver upgrade; null: none is planned")
    gpu_fault: str | None = Field(description="What is wrong with its GPU, for its user; null: nothing that is known")

    @classmethod
    def of(
        cls, vm: Vm, unseen: Mapping[str, float | None], stop: PlannedStop | None = None, fault: str | None = None,
        *, watching: bool,
    ) -> VmAnswer:  # fmt: skip
        return cls.model_validate(vm_members(vm, unseen, stop, fault, watching=watching))


def vm_json(
    vm: Vm, silent_since: float | None, stop: PlannedStop | None = None, fault: str | None = None, *, watching: bool
) -> bytes:
    """A :class:`VmAnswer` as JSON, kept: of a long list hardly one VM has changed since it was told last.
    ``silent_since``: when its host was seen last, if that does not answer."""
    asked = silent_since, stop, fault
    kept = _TOLD.get((vm.id, watching))
    if kept is not None and kept[0] is vm and kept[1] == asked:  # VMs that differ in labels alone are equal
        return kept[2]
    told = to_json(vm_members(vm, {vm.host: silent_since}, stop, fault, watching=watching))
    size = 1024 + len(told) + getsizeof(vm.spec.user_data)
    _TOLD.put((vm.id, watching), (vm, asked, told), size)
    return told


_TOLD: Final = ByteCache[tuple[Vm, tuple[float | None, PlannedStop | None, str | None], bytes]](128 * MIB)
"""What was told of a VM last. Enough for 20,000 of the usual size."""


def vm_members(
    vm: Vm, unseen: Mapping[str, float | None], stop: PlannedStop | None = None, fault: str | None = None,
    *, watching: bool,
) -> dict[str, object]:  # fmt: skip
    """Of a :class:`VmAnswer`. ``unseen``: hosts that do not answer.
    ``watching``: the reader may know of hosts and GPUs."""
    spec, devices = vm.spec, [device_members(device, watching=watching) for device in vm.devices]
    return {
        "id": vm.id,
        "name": spec.name,
        "tenant": spec.tenant,
        "state": vm.state,
        "host": vm.host if watching else None,
        "profile": spec.profile,
        "device": devices[0],
        "devices": devices,
        "addresses": vm.addresses,
        "image": short_of(spec.image, spec.tenant),
        "vcpus": spec.vcpus,
        "memory_mib": spec.memory_mib,
        "disk_bytes": spec.disk_bytes,
        "network": short_name(spec.network),
        "network_tenant": tenant_of(spec.network),
        "more_networks": [short_name(name) for name in spec.more_networks],
        "cards": card_members(vm),
        "volumes": attached_names(vm),
        "nic": spec.nic,
        "nic_function": nic_members(vm.nic, watching=watching),
        "ssh_keys": spec.ssh_keys,
        "has_user_data": spec.user_data is not None,
        "boot_policy": spec.boot_policy,
        "priority": spec.priority,
        "label": spec.label,
        "labels": dict(spec.labels),
        "protected": spec.protected,
        "adopted": spec.adopted,
        "operation": vm.operation,
        "unknown_since": moment_or_none(unseen.get(vm.host)),
        "created_at": moment(vm.created_at),
        "lease_end": moment_or_none(vm.lease_end),
        "deallocated": vm.deallocated,
        "planned_stop": None if stop is None else {"policy": stop.policy, "opens_at": moment_or_none(stop.opens_at)},
        "gpu_fault": fault,
    }


class PlanAnswer(AnswerBody):
    """What create would do, to the last host action. Identifiers differ in a real run.

    A tenant gets one when it would fit, without where and how: hosts and GPUs are the operator's."""

    model_config = ConfigDict(title="VmPlan")

    host: str | None = Field(description="Null for a tenant")
    gpu: str | None = Field(description="PCI address of the first device's; null for a tenant")
    gpus: tuple[str, ...] = Field(description="Of each device in their order; none for a tenant")
    why: str
    preempts: tuple[str, ...] = Field(description="VMs that would be stopped for it; others' are not named")
    actions: tuple[dict[str, object], ...] = Field(
        description="Host actions by name, with all their values; none for a tenant"
    )
    domain_xml: str | None = Field(description="Null for a tenant")
    provision: tuple[str, ...] = Field(default=(), description="Roles that would then be run in its guest")

    @classmethod
    def of(cls, plan: DryRun, tenants: Collection[str] | None) -> PlanAnswer:
        """``tenants``: whose things the caller may know of; None: everybody's."""
        if tenants is not None:
            preempts = named_for(tenants, plan.preempts)
            roles = plan.provision
            return cls(
                host=None, gpu=None, gpus=(), why=FITS, preempts=preempts, actions=(), domain_xml=None, provision=roles
            )  # fmt: skip
        return cls(
            host=plan.host,
            gpu=plan.gpus[0],
            gpus=plan.gpus,
            why=plan.why,
            preempts=plan.preempts,
            actions=tuple(action_to_dict(action) for action in plan.actions),
            domain_xml=plan.domain_xml,
            provision=plan.provision,
        )


class ConsoleLogAnswer(AnswerBody):
    """What a serial console wrote last."""

    content_base64: str = Field(description="In base64, as guests print any bytes; empty: nothing was kept")

    @classmethod
    def of(cls, content: bytes) -> ConsoleLogAnswer:
        return cls(content_base64=base64.b64encode(content).decode())


FITS = "there is a place for it"
OTHERS = "VMs of others"


def named_for(tenants: Collection[str] | None, vms: Sequence[str]) -> tuple[str, ...]:
    """``tenant/name`` of those it may know of, and once for all others that there are some; None: may know all."""
    known = tuple(name for name in vms if tenants is None or name.partition("/")[0] in tenants)
    return known if len(known) == len(vms) else (*known, OTHERS)
