# SPDX-License-Identifier: Apache-2.0
"""The form of a file for ``apply``. Strict: no field is guessed, converted or ignored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from orchestrator.catalogue.described import StrictForm
from orchestrator.catalogue.offering_files import mistakes_in, problem_at
from orchestrator.catalogue.offering_schema import OfferingForm, SchemaVersion
from orchestrator.catalogue.problems import Problem
from orchestrator.catalogue.profiles import Profiles, shipped_profiles
from orchestrator.catalogue.quota_names import resolved_resource
from orchestrator.catalogue.tables import describe
from orchestrator.catalogue.yaml_lines import LinedYaml
from orchestrator.core.errors import InvalidInput, NotFound, Reason
from orchestrator.core.gpu.pci import parse_pci_address
from orchestrator.core.hosts.bridges import MAX_DHCP_SERVERS, MAX_VLAN, Uplink, check_dhcp_server, check_uplink
from orchestrator.core.labels import MAX_DESCRIPTION, MAX_LABELS, WantedAbout, check_labels
from orchestrator.core.manifest import (
    Kind,
    Manifest,
    ManifestVm,
    WantedImage,
    WantedOffering,
    WantedTenant,
    WantedVolume,
)
from orchestrator.core.names import check_name
from orchestrator.core.plain_words import LINE_PATTERN
from orchestrator.core.tenancy.quota import check_resource, parse_amount
from orchestrator.core.units import parse_duration
from orchestrator.core.vms.lease import MAX_LEASE_S, WantedEnd, parse_moment
from orchestrator.core.vms.network import MAX_CARDS, WantedNetwork, parse_subnet
from orchestrator.core.vms.user_data import check_ssh_key, plain_user_data
from orchestrator.core.vms.vm import MAX_VCPUS, VmShape, disk_bytes, memory_mib
from orchestrator.core.vms.volume import MAX_ATTACHED

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


Name = Annotated[str, _checked(lambda text: check_name(text, what="object"))]
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


class NetworkForm(_DescribedForm):
    """A network: of ours, or with ``bridge`` one that hosts have."""

    name: Name
    subnet: Annotated[str, _checked(lambda text: parse_subnet(text, ()))] | None = None
    tenant: Name | None = None
    bridge: Annotated[str, _checked(lambda text: check_uplink(Uplink(bridge=text), ()))] | None = None
    vlan: int | None = Field(default=None, ge=1, le=MAX_VLAN)
    dhcp_servers: list[Annotated[str, _checked(check_dhcp_server)]] = Field(default=[], max_length=MAX_DHCP_SERVERS)

    @model_validator(mode="after")
    def _one_place(self) -> NetworkForm:
        if self.bridge is None and (self.vlan is not None or self.dhcp_servers):
            raise PydanticCustomError("refused", "vlan and dhcp_servers are given with a bridge")
        if self.bridge is not None and self.subnet is not None:
            raise PydanticCustomError("refused", "a network on a bridge has no subnet of ours: subnet or bridge")
        return self

    def to_core(self) -> WantedNetwork:
        return WantedNetwork(
            name=self.name,
            subnet=self.subnet,
            tenant=self.tenant,
            uplink=None if self.bridge is None else Uplink(bridge=self.bridge, vlan=self.vlan),
            dhcp_servers=tuple(self.dhcp_servers),
        )


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

    def to_core(self) -> WantedVolume:
        return WantedVolume(name=self.name, tenant=self.tenant, size_bytes=disk_bytes(self.size))


class VmForm(StrictForm, copies=VmShape, without={"memory_mib", "disk_bytes"}, defaults=True):
    """A VM. What is left out is as ``create-vm`` has it."""

    name: Name
    tenant: Name = "default"
    profile: str = Field(min_length=1, max_length=255)
    image: Name
    vcpus: int | None = Field(default=None, ge=1, le=MAX_VCPUS)
    memory: Annotated[str, _checked(memory_mib)] | None = None
    disk: Annotated[str, _checked(disk_bytes)] | None = None
    network: Name = "default"
    more_networks: list[Name] = Field(default=[], max_length=MAX_CARDS - 1)
    volumes: list[Name] = Field(default=[], max_length=MAX_ATTACHED)
    ssh_keys: list[SshKey] = Field(default=[], max_length=64)
    user_data: Annotated[str, _checked(plain_user_data)] | None = None
    host: Name | None = None
    gpu: Annotated[str, _checked(parse_pci_address)] | None = None
    lease: Annotated[str, _checked(_lease_s)] | None = None
    until: Annotated[str, _checked(_moment)] | None = None
    labels: ManifestLabels = Field(default={})
    protected: bool | None = None
    state: Literal["running", "stopped"] = "running"

    @model_validator(mode="after")
    def _one_end(self) -> VmForm:
        if self.lease is not None and self.until is not None:
            raise PydanticCustomError("refused", "a lease has one end: lease or until, not both")
        return self

    def to_core(self) -> ManifestVm:
        shape: dict[str, Any] = {member.name: getattr(self, member.name, 0) for member in fields(VmShape)} | {
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
    images: list[ImageForm] = Field(default=[], max_length=MAX_OBJECTS)
    volumes: list[VolumeForm] = Field(default=[], max_length=MAX_OBJECTS)
    vms: list[VmForm] = Field(default=[], max_length=MAX_OBJECTS)


_Read = tuple[LinedYaml, ManifestForm]


def read_manifest(path: Path, text: str) -> Manifest:
    """One file's text as wanted things. Raises as :func:`read_manifests` does."""
    return read_manifests([(path, text)])


def read_manifests(files: Sequence[tuple[Path, str]]) -> Manifest:
    """Files' texts as the wanted things of all of them together; what is in one may name what is in another.

    :raises InvalidInput: ``manifest.invalid`` with file, line and reason of every mistake; ``manifest.labels``: they
        have several labels
    """
    read = [_read(path, text) for path, text in files]
    mistakes = [
        *_given_twice(read),
        *(mistake for document, form in read for mistake in _impossible_offerings(document, form)),
    ]
    if mistakes:
        raise _invalid(mistakes)
    forms = [form for _, form in read]
    offerings = [offering for form in forms for offering in form.offerings]
    profiles = shipped_profiles().with_site(offering.to_core("site") for offering in offerings)
    return Manifest(
        label=_one_label(read),
        tenants=tuple(tenant.to_core(profiles) for form in forms for tenant in form.tenants),
        offerings=tuple(
            WantedOffering(offering=offering.to_core("site"), look_up=not offering.unlisted) for offering in offerings
        ),
        networks=tuple(network.to_core() for form in forms for network in form.networks),
        images=tuple(image.to_core() for form in forms for image in form.images),
        volumes=tuple(volume.to_core() for form in forms for volume in form.volumes),
        vms=tuple(vm.to_core() for form in forms for vm in form.vms),
        abouts={key: about for form in forms for key, about in _abouts(form)},
    )


def _read(path: Path, text: str) -> _Read:
    try:
        document = LinedYaml(str(path), text)
    except InvalidInput as error:
        raise _invalid([_problem_of(reason) for reason in error.reasons]) from error
    try:
        return document, ManifestForm.model_validate(document.data)
    except ValidationError as error:
        raise _invalid([_problem(document, detail) for detail in error.errors(include_url=False)]) from error


def _one_label(read: Sequence[_Read]) -> str | None:
    """A label says which VMs are pruned: two files with different ones are two sites."""
    (first, form), *others = read
    for document, other in others:
        if other.label != form.label:
            labels = [
                f"{document_read.file} has {label or 'none'}"
                for document_read, label in ((first, form.label), (document, other.label))
            ]
            raise InvalidInput(
                "manifest.labels",
                f"the files have different labels: {', '.join(labels)}",
                hint="apply one after the other",
            )
    return form.label


def _problem(document: LinedYaml, detail: ErrorDetails) -> Problem:
    """A secret never comes back in a message: the value of ``user_data`` is left out."""
    secret = "user_data" in detail["loc"]
    shown: ErrorDetails = {**detail, "input": "..."} if secret else detail
    return Problem(file=document.file, line=document.line_of(detail["loc"]), reason=describe(shown, ManifestForm))


def _problem_of(reason: Reason) -> Problem:
    file, _, line = reason.subjects[0].rpartition(":")
    return Problem(file=file, line=int(line), reason=reason.message)


def _impossible_offerings(document: LinedYaml, form: ManifestForm) -> Iterator[Problem]:
    for index, entry in enumerate(form.offerings):
        offering, shipped = entry.to_core("site"), shipped_profiles()
        mistakes = [*mistakes_in(offering, shipped.catalogue, look_up=not entry.unlisted)]
        taken = shipped.taken(offering)
        if taken is not None:
            mistakes.append(("name", f"the name is taken: {taken}"))
        for field, reason in mistakes:
            yield problem_at(document, index, field, f"{offering.name}: {reason}")


def _abouts(form: ManifestForm) -> Iterator[tuple[tuple[Kind, str], WantedAbout]]:
    yield from ((("tenant", tenant.name), tenant.about()) for tenant in form.tenants)
    yield from ((("network", network.to_core().key), network.about()) for network in form.networks)
    yield from ((("image", image.name), image.about()) for image in form.images)
    yield from ((("volume", volume.to_core().key), volume.about()) for volume in form.volumes)


def _keys(form: ManifestForm) -> dict[str, list[str]]:
    return {
        "tenants": [tenant.name for tenant in form.tenants],
        "offerings": [offering.name for offering in form.offerings],
        "networks": [network.to_core().key for network in form.networks],
        "images": [image.name for image in form.images],
        "volumes": [volume.to_core().key for volume in form.volumes],
        "vms": [f"{vm.tenant}/{vm.name}" for vm in form.vms],
    }


def _given_twice(read: Sequence[_Read]) -> list[Problem]:
    problems, seen = [], set[tuple[str, str]]()
    for document, form in read:
        for noun, names in _keys(form).items():
            for index, key in enumerate(names):
                if (noun, key) in seen:
                    line = document.line_of((noun, index))
                    problems.append(Problem(file=document.file, line=line, reason=f"{noun}: {key} is given twice"))
                seen.add((noun, key))
    return problems


def _invalid(problems: list[Problem]) -> InvalidInput:
    ordered = sorted(problems, key=lambda problem: (problem.file, problem.line))
    more = f" (and {len(ordered) - 1} more)" if len(ordered) > 1 else ""
    return InvalidInput(
        "manifest.invalid",
        f"{ordered[0]}{more}",
        hint="correct the file; nothing was changed",
        reasons=tuple(
            Reason(code="manifest.invalid", message=problem.reason, subjects=(f"{problem.file}:{problem.line}",))
            for problem in ordered
        )
        if more
        else (),
    )
