# SPDX-License-Identifier: Apache-2.0
"""What each entry of a file for ``apply`` may say. Strict: no field is guessed, converted or ignored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from orchestrator.catalogue.described import StrictForm
from orchestrator.catalogue.offering_schema import OfferingForm, SchemaVersion
from orchestrator.catalogue.profiles import Profiles
from orchestrator.catalogue.quota_names import resolved_resource
from orchestrator.core.errors import Conflict, InvalidInput, NotFound
from orchestrator.core.gpu.pci import parse_pci_address
from orchestrator.core.hosts.bridges import MAX_DHCP_SERVERS, MAX_VLAN, Uplink, check_dhcp_server, check_uplink, is_ipv4
from orchestrator.core.labels import MAX_DESCRIPTION, MAX_LABELS, WantedAbout, check_labels
from orchestrator.core.manifest import (
    ManifestVm,
    WantedFloating,
    WantedGroup,
    WantedImage,
    WantedTenant,
    WantedVolume,
)
from orchestrator.core.names import NAME_PATTERN, check_name
from orchestrator.core.overlay import MAX_SUBNETS, FlowLog, NewOvnNetwork
from orchestrator.core.peering import MAX_PEERS
from orchestrator.core.plain_words import LINE_PATTERN
from orchestrator.core.security_groups import MAX_RULES, MAX_USES, NamedUse, ordered, parse_rule
from orchestrator.core.tenancy.quota import check_resource, parse_amount
from orchestrator.core.units import parse_duration
from orchestrator.core.vms.backup import SHORTEST_ID
from orchestrator.core.vms.lease import MAX_LEASE_S, WantedEnd, parse_moment
from orchestrator.core.vms.network import MAX_CARDS, WantedNetwork, parse_subnet
from orchestrator.core.vms.user_data import check_ssh_key, plain_user_data
from orchestrator.core.vms.vm import MAX_VCPUS, VmShape, disk_bytes, memory_mib
from orchestrator.core.vms.volume import MAX_ATTACHED, plain_name

MAX_OBJECTS: Final = 10_000


def _checked(check: Callable[[str], object]) -> AfterValidator:
    """Our own check of a text, its message kept."""

    def run(text: str) -> str:
        try:
            check(text)
        except InvalidInput as error:
            raise PydanticCustomError("refused", "{why}", {"why": error.message}) from error
        return text

    return AfterValidator(run)


def _lease_s(text: str) -> int:
    return parse_duration(text, field="lease", at_most_s=MAX_LEASE_S)


def _moment(text: str) -> float:
    return parse_moment(text, field="until")


def _check_network(text: str) -> None:
    """``NAME`` or ``TENANT/NAME``."""
    owner, slash, name = text.rpartition("/")
    for part in (owner, name) if slash else (name,):
        check_name(part, what="network")


def _ipv4(text: str) -> str:
    if not is_ipv4(text):
        raise PydanticCustomError("refused", "a floating address is one of IPv4, like 192.0.2.107")
    return text


Name = Annotated[str, _checked(lambda text: check_name(text, what="object"))]
AttachedName = Annotated[str, _checked(lambda text: check_name(plain_name(text), what="volume"))]
"""Of a data volume as a VM has it: ``name``, or ``name:ro`` to read."""
SshKey = Annotated[str, _checked(check_ssh_key)]


def _check_quota(quota: dict[str, int | str]) -> dict[str, int | str]:
    try:
        for resource, amount in quota.items():
            parse_amount(check_resource(resource), str(amount))
    except InvalidInput as error:
        raise PydanticCustomError("refused", "{why}", {"why": error.message}) from error
    return quota


def _check_labels(labels: dict[str, str]) -> dict[str, str]:
    try:
        return dict(check_labels(labels))
    except InvalidInput as error:
        raise PydanticCustomError("refused", "{why}", {"why": error.message}) from error


ManifestLabels = Annotated[dict[str, str], AfterValidator(_check_labels), Field(max_length=MAX_LABELS)]


class _DescribedForm(StrictForm):
    """What is left out stays as it is; an empty description takes one away."""

    description: str | None = Field(default=None, max_length=MAX_DESCRIPTION, pattern=LINE_PATTERN)
    labels: ManifestLabels = Field(default={})

    def about(self) -> WantedAbout:
        """What the file says of the thing."""
        return WantedAbout(description=self.description, labels=check_labels(self.labels))


class TenantForm(_DescribedForm):
    """A tenant. ``quota`` is as ``quota set`` takes it: ``devices: 2``, ``framebuffer: 40GiB``, ``vms: none``."""

    name: Name
    quota: Annotated[dict[str, int | str], AfterValidator(_check_quota)] = Field(default={}, max_length=100)

    def to_core(self, profiles: Profiles) -> WantedTenant:
        """The tenant as the core knows it; the keys of its quota as the server keeps them."""
        quota = ((_meant(resource, profiles), str(amount)) for resource, amount in self.quota.items())
        return WantedTenant(name=self.name, quota=tuple((name, parse_amount(name, amount)) for name, amount in quota))


def _meant(resource: str, profiles: Profiles) -> str:
    """An offering that only the server has is looked up there."""
    try:
        return resolved_resource(resource, profiles)
    except NotFound:
        return resource


def _off_or_as_it_is(value: object) -> object:
    """YAML 1.1 reads a bare ``off`` as false."""
    return "off" if value is False else value


class NetworkForm(_DescribedForm):
    """A network: of ours, or with ``bridge`` one that hosts have, or of kind ``ovn`` one over all hosts."""

    name: Name
    kind: Literal["nat", "bridge", "ovn"] | None = None
    subnet: str | None = None
    more_subnets: list[str] = Field(default=[], max_length=MAX_SUBNETS)
    mtu: int | None = None
    dns_servers: list[str] | None = None
    search_domains: list[str] | None = None
    dhcp_options: dict[str, str] | None = None
    flow_log: Annotated[FlowLog | None, BeforeValidator(_off_or_as_it_is)] = None
    out: Name | None = None
    peers: list[Annotated[str, _checked(_check_network)]] = Field(default=[], max_length=MAX_PEERS)
    tenant: Name | None = None
    bridge: Annotated[str, _checked(lambda text: check_uplink(Uplink(bridge=text), ()))] | None = None
    vlan: int | None = Field(default=None, ge=1, le=MAX_VLAN)
    dhcp_servers: list[Annotated[str, _checked(check_dhcp_server)]] = Field(default=[], max_length=MAX_DHCP_SERVERS)

    @model_validator(mode="after")
    def _one_kind(self) -> NetworkForm:
        is_kind = "ovn" if self.kind == "ovn" else "nat" if self.bridge is None else "bridge"
        if self.kind not in {None, is_kind}:
            raise PydanticCustomError("refused", "a network of kind bridge has a bridge, and no other has one")
        of_ovn = (self.mtu, self.dns_servers, self.search_domains, self.dhcp_options, self.out, self.flow_log)
        if is_kind != "ovn" and (self.more_subnets or self.peers or any(value is not None for value in of_ovn)):
            names = "more_subnets, mtu, dns_servers, search_domains, dhcp_options, flow_log, out and peers"
            raise PydanticCustomError("refused", f"{names} are of networks of kind ovn")
        if is_kind == "ovn" and self.tenant is None:
            raise PydanticCustomError("refused", "a network of kind ovn is a tenant's: tenant")
        try:
            if is_kind == "ovn":
                self._overlay().checked("")
            elif self.subnet is not None:
                parse_subnet(self.subnet, ())
        except (InvalidInput, Conflict) as error:
            raise PydanticCustomError("refused", "{why}", {"why": error.message}) from error
        return self

    def _overlay(self) -> NewOvnNetwork:
        subnets = (*([] if self.subnet is None else [self.subnet]), *self.more_subnets)
        dns, search = (
            None if several is None else tuple(several) for several in (self.dns_servers, self.search_domains)
        )
        dhcp = None if self.dhcp_options is None else tuple(sorted(self.dhcp_options.items()))
        return NewOvnNetwork(subnets=subnets, mtu=self.mtu, dns=dns, search=search, dhcp=dhcp, flow_log=self.flow_log)

    @model_validator(mode="after")
    def _one_place(self) -> NetworkForm:
        if self.bridge is None and (self.vlan is not None or self.dhcp_servers):
            raise PydanticCustomError("refused", "vlan and dhcp_servers are given with a bridge")
        if self.bridge is not None and (self.subnet is not None or self.kind == "ovn"):
            raise PydanticCustomError("refused", "a network on a bridge has no subnet of ours: subnet or bridge")
        return self

    def to_core(self) -> WantedNetwork:
        return WantedNetwork(
            name=self.name,
            subnet=None if self.kind == "ovn" else self.subnet,
            overlay=self._overlay() if self.kind == "ovn" else None,
            out=self.out,
            peers=tuple(peer if "/" in peer else f"{self.tenant}/{peer}" for peer in self.peers),
            tenant=self.tenant,
            uplink=None if self.bridge is None else Uplink(bridge=self.bridge, vlan=self.vlan),
            dhcp_servers=tuple(self.dhcp_servers),
        )


class GroupUseForm(StrictForm):
    """A VM, a network, or the VM's card on the network."""

    vm: Name | None = None
    network: Name | None = None

    @model_validator(mode="after")
    def _something(self) -> GroupUseForm:
        if self.vm is None and self.network is None:
            raise PydanticCustomError("refused", "a group is on a VM, a network or both: vm, network")
        return self


class SecurityGroupForm(_DescribedForm):
    """A security group. ``rules`` are as ``security-group list`` shows them: ``in tcp 22-80 from 10.0.0.0/8``."""

    name: Name
    tenant: Name = "default"
    rules: list[Annotated[str, _checked(parse_rule)]] | None = Field(default=None, max_length=MAX_RULES)
    uses: list[GroupUseForm] | None = Field(default=None, max_length=MAX_USES)

    def to_core(self) -> WantedGroup:
        return WantedGroup(
            name=self.name,
            tenant=self.tenant,
            rules=None if self.rules is None else ordered(map(parse_rule, self.rules)),
            uses=None if self.uses is None else tuple(NamedUse(vm=use.vm, network=use.network) for use in self.uses),
        )


class FloatingAddressForm(StrictForm):
    """A floating address, and the VM that it leads to. What is left out stays as it is."""

    address: Annotated[str, Field(max_length=15), AfterValidator(_ipv4)]
    tenant: Name = "default"
    network: Name | None = None
    vm: Name | None = None
    vm_network: Name | None = None

    @model_validator(mode="after")
    def _of_a_vm(self) -> FloatingAddressForm:
        if self.vm is None and self.vm_network is not None:
            raise PydanticCustomError("refused", "vm_network is of a VM: vm")
        return self

    def to_core(self) -> WantedFloating:
        return WantedFloating(**self.model_dump())


class ImageForm(_DescribedForm):
    """A base image."""

    name: Name
    source: str = Field(min_length=1, max_length=4096)
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None

    def to_core(self) -> WantedImage:
        return WantedImage(name=self.name, source=self.source, sha256=self.sha256)


class VolumeForm(_DescribedForm):
    """A data volume."""

    name: Name
    tenant: Name = "default"
    size: Annotated[str, _checked(disk_bytes)]
    pool: Name | None = None
    encrypted: bool = False

    def to_core(self) -> WantedVolume:
        size_bytes, name, tenant = disk_bytes(self.size), self.name, self.tenant
        return WantedVolume(name=name, tenant=tenant, size_bytes=size_bytes, pool=self.pool, encrypted=self.encrypted)


class VmForm(StrictForm, copies=VmShape, without={"memory_mib", "disk_bytes"}, defaults=True):
    """A VM. What is left out is as ``create-vm`` has it."""

    name: Name
    tenant: Name = "default"
    profile: str = Field(min_length=1, max_length=255)
    image: Name | None = None
    vcpus: int | None = Field(default=None, ge=1, le=MAX_VCPUS)
    memory: Annotated[str, _checked(memory_mib)] | None = None
    disk: Annotated[str, _checked(disk_bytes)] | None = None
    network: Name = "default"
    more_networks: list[Name] = Field(default=[], max_length=MAX_CARDS - 1)
    addresses: dict[Name, Annotated[str, Field(max_length=64)]] = Field(default={}, max_length=MAX_CARDS)
    volumes: list[AttachedName] = Field(default=[], max_length=MAX_ATTACHED)
    ssh_keys: list[SshKey] = Field(default=[], max_length=64)
    from_snapshot: Annotated[str, Field(pattern=f"^{NAME_PATTERN}/{NAME_PATTERN}$")] | None = None
    from_backup: Annotated[str, Field(min_length=SHORTEST_ID, max_length=36)] | None = None
    user_data: Annotated[str, _checked(plain_user_data)] | None = None
    host: Name | None = None
    gpu: Annotated[str, _checked(parse_pci_address)] | None = None
    lease: Annotated[str, _checked(_lease_s)] | None = None
    until: Annotated[str, _checked(_moment)] | None = None
    labels: ManifestLabels = Field(default={})
    protected: bool | None = None
    state: Literal["running", "stopped"] = "running"

    @model_validator(mode="after")
    def _one_of_each(self) -> VmForm:
        if self.lease is not None and self.until is not None:
            raise PydanticCustomError("refused", "a lease has one end: lease or until, not both")
        if self.from_snapshot is not None and self.from_backup is not None:
            raise PydanticCustomError("refused", "a disk is a copy of one: from_snapshot or from_backup, not both")
        return self

    def to_core(self) -> ManifestVm:
        shape: dict[str, Any] = {member.name: getattr(self, member.name, 0) for member in fields(VmShape)} | {
            "image": self.image or "",
            "vcpus": self.vcpus or 0,
            "memory_mib": 0 if self.memory is None else memory_mib(self.memory),
            "disk_bytes": 0 if self.disk is None else disk_bytes(self.disk),
            "more_networks": tuple(self.more_networks),
            "volumes": tuple(self.volumes),
            "ssh_keys": tuple(dict.fromkeys(check_ssh_key(key) for key in self.ssh_keys)),
            "gpu": None if self.gpu is None else parse_pci_address(self.gpu),
        }
        end = WantedEnd(
            after_s=None if self.lease is None else _lease_s(self.lease),
            at=None if self.until is None else _moment(self.until),
        )
        return ManifestVm(
            **shape,
            running=self.state == "running",
            end=end,
            labels=check_labels(self.labels),
            addresses=tuple(sorted(self.addresses.items())),
            from_snapshot=self.from_snapshot,
            from_backup=self.from_backup,
            protected=self.protected,
            has_user_data=self.user_data is not None,
            user_data=self.user_data,
        )


class ManifestForm(StrictForm):
    """The whole file."""

    schema_version: SchemaVersion
    label: Name | None = Field(default=None, description="Marks the VMs it makes; --prune needs it")
    tenants: list[TenantForm] = Field(default=[], max_length=MAX_OBJECTS)
    offerings: list[OfferingForm] = Field(default=[], max_length=MAX_OBJECTS)
    networks: list[NetworkForm] = Field(default=[], max_length=MAX_OBJECTS)
    floating_addresses: list[FloatingAddressForm] = Field(default=[], max_length=MAX_OBJECTS)
    security_groups: list[SecurityGroupForm] = Field(default=[], max_length=MAX_OBJECTS)
    images: list[ImageForm] = Field(default=[], max_length=MAX_OBJECTS)
    volumes: list[VolumeForm] = Field(default=[], max_length=MAX_OBJECTS)
    vms: list[VmForm] = Field(default=[], max_length=MAX_OBJECTS)
