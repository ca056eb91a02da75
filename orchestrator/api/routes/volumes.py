# SPDX-License-Identifier: Apache-2.0
"""/v1/volumes"""

from __future__ import annotations

from fastapi import APIRouter, Response
from pydantic import Field

from orchestrator.api.auth import CallerOf
from orchestrator.api.http_answers import located, started
from orchestrator.api.paging import SortedPagingOf
from orchestrator.api.schemas.base import AboutAnswer, DescribeBody, Moment, Name, NameInPath
from orchestrator.api.schemas.operations import StartedAnswer
from orchestrator.api.services import SelectorOf, ServicesOf, TenantFilter, TenantOf
from orchestrator.api.visibility import check_may_name_place, watches_pool
from orchestrator.catalogue.described import StrictForm
from orchestrator.core.hosts.domain import MAX_BYTES_PER_S, MAX_IOPS, DiskLimits
from orchestrator.core.hosts.pool import short_of
from orchestrator.core.labels import selects
from orchestrator.core.tenancy.tenant import DEFAULT_TENANT
from orchestrator.core.vms.vm import MAX_DISK_BYTES, MIN_DISK_BYTES
from orchestrator.core.vms.volume import Volume, VolumeEncryption, VolumeState
from orchestrator.services.vms.volumes import VolumeInfo, VolumeTraits


class CreateVolumeBody(StrictForm, example={"name": "data", "size_bytes": 21474836480}):
    """A data volume. The same name and size again mean the same volume."""

    name: Name
    """What it is called."""
    tenant: Name = "default"
    """Whose it is."""
    size_bytes: int = Field(ge=MIN_DISK_BYTES, le=MAX_DISK_BYTES)
    """In bytes."""
    host: Name | None = None
    """Where it shall lie; null: where its first VM goes, or in its pool."""
    pool: Name | None = None
    """Which it shall lie in, so that each host that has the pool reaches it; none: on a host's own disk; null: as its
    tenant's policy says."""
    max_bytes_per_s: int = Field(default=0, ge=0, le=MAX_BYTES_PER_S)
    """What its VM may read and write of it in a second together, in bytes; 0: as much as its offering says."""
    max_iops: int = Field(default=0, ge=0, le=MAX_IOPS)
    """The same in requests."""
    encrypted: bool = False
    """Whether its file is encrypted, with a key of its own; not in a pool."""


class LimitVolumeBody(StrictForm, example={"max_iops": 500}):
    """What a VM may read and write of a volume in a second together; what is not named stays."""

    max_bytes_per_s: int | None = Field(default=None, ge=0, le=MAX_BYTES_PER_S)
    """In bytes; 0: as much as its offering says; null: it stays."""
    max_iops: int | None = Field(default=None, ge=0, le=MAX_IOPS)
    """The same in requests."""


class AttachVolumeBody(StrictForm, example={"vm": "train"}):
    """Which VM the volume is attached to."""

    vm: Name
    """Name of a VM of the same tenant."""
    read_only: bool = False
    """Whether it only reads it, as others on the volume's host may at the same time."""


class DetachVolumeBody(StrictForm, example={"vm": "train"}):
    """Which VM the volume is taken from."""

    vm: Name
    """Name of a VM of the same tenant."""


class ResizeVolumeBody(StrictForm, example={"size_bytes": 42949672960}):
    """How large the volume becomes."""

    size_bytes: int = Field(ge=MIN_DISK_BYTES, le=MAX_DISK_BYTES)
    """In bytes; not less than it has."""


class DataVolumeAnswer(AboutAnswer):
    """A disk of a tenant that stays when the VM goes that it is attached to."""

    copied_from = (Volume,)

    id: str
    name: str
    tenant: str
    size_bytes: int
    state: VolumeState
    """new: made when it is first attached; copying: a snapshot is copied to it; lost: its host was given up, it can
    only be deleted."""
    vm: str | None
    """Name of the VM that it is attached to, which may write to it; null: of none."""
    read_by: list[str]
    """Names of the VMs that it is attached to read-only."""
    host: str | None
    """Where it lies; null: nowhere yet, in a pool, and for a tenant."""
    pool: str | None
    """Name of the pool that it lies in; null: in none."""
    max_bytes_per_s: int | None
    max_iops: int | None
    encryption: VolumeEncryption
    """luks: its file is encrypted; keyless: its key was destroyed, it can only be deleted."""
    created_at: Moment

    @classmethod
    def of(cls, info: VolumeInfo, *, watching: bool) -> DataVolumeAnswer:
        """``watching``: the reader may know of hosts."""
        one = info.volume
        return cls.copied_about(
            one,
            one.about,
            vm=info.vm,
            read_by=list(info.read_by),
            host=one.host if watching else None,
            pool=one.pool and short_of(one.pool),
        )


router = APIRouter(prefix="/volumes", tags=["volumes"])


@router.post("", status_code=201)
def create(response: Response, body: CreateVolumeBody, services: ServicesOf, caller: CallerOf) -> DataVolumeAnswer:
    """Create a data volume. Its file is made when it is first attached."""
    check_may_name_place(caller, body.host)
    located(response, "volumes", body.name)
    limits = DiskLimits(bytes_per_s=body.max_bytes_per_s, iops=body.max_iops)
    traits = VolumeTraits(limits=limits, encrypted=body.encrypted)
    made = services.volumes.create(body.tenant, body.name, body.size_bytes, body.host, body.pool, traits=traits)
    return DataVolumeAnswer.of(made, watching=watches_pool(caller))


@router.get("")
def list_all(
    services: ServicesOf, caller: CallerOf, paging: SortedPagingOf, selector: SelectorOf, tenant: TenantFilter = None
) -> list[DataVolumeAnswer]:
    """List volumes. Data volumes by tenant and name."""
    theirs = services.volumes.list(caller.visible(tenant))
    selected = (info for info in theirs if selects(selector, info.volume.about.labels))
    watching = watches_pool(caller)
    return paging.answers(
        DataVolumeAnswer,
        selected,
        lambda info: (info.volume.tenant, info.volume.name),
        lambda info: DataVolumeAnswer.of(info, watching=watching),
    )


@router.get("/{name}")
def get(
    name: NameInPath, services: ServicesOf, caller: CallerOf, tenant: TenantOf = DEFAULT_TENANT
) -> DataVolumeAnswer:
    """Get a volume."""
    return DataVolumeAnswer.of(services.volumes.get(tenant, name), watching=watches_pool(caller))


@router.patch("/{name}")
def describe(
    name: NameInPath, body: DescribeBody, services: ServicesOf, caller: CallerOf, tenant: TenantOf = DEFAULT_TENANT
) -> DataVolumeAnswer:
    """Describe a volume. Set description and labels; those not named stay."""
    info = services.volumes.describe(tenant, name, body.description, body.labels)
    return DataVolumeAnswer.of(info, watching=watches_pool(caller))


@router.delete("/{name}", status_code=202)
def delete(
    response: Response, name: NameInPath, services: ServicesOf, caller: CallerOf, tenant: TenantOf = DEFAULT_TENANT
) -> StartedAnswer:
    """Delete a data volume that no VM has, with what is on it."""
    return started(response, services.volumes.delete(tenant, name), caller.tenants)


@router.post("/{name}/attach", status_code=202)
def attach(
    response: Response,
    name: NameInPath,
    body: AttachVolumeBody,
    services: ServicesOf,
    caller: CallerOf,
    tenant: TenantOf = DEFAULT_TENANT,
) -> StartedAnswer:
    """Attach a volume to a VM, which may run. One that VMs read is attached to none for writing."""
    return started(response, services.volumes.attach(tenant, name, body.vm, read_only=body.read_only), caller.tenants)


@router.post("/{name}/detach", status_code=202)
def detach(
    response: Response,
    name: NameInPath,
    body: DetachVolumeBody,
    services: ServicesOf,
    caller: CallerOf,
    tenant: TenantOf = DEFAULT_TENANT,
) -> StartedAnswer:
    """Detach a volume from a VM, which may run. What is on it stays."""
    return started(response, services.volumes.detach(tenant, name, body.vm), caller.tenants)


@router.post("/{name}/resize", status_code=202)
def resize(
    response: Response,
    name: NameInPath,
    body: ResizeVolumeBody,
    services: ServicesOf,
    caller: CallerOf,
    tenant: TenantOf = DEFAULT_TENANT,
) -> StartedAnswer:
    """Resize a volume. It becomes larger, also while a VM runs that has it; none ever shrinks."""
    return started(response, services.volumes.resize(tenant, name, body.size_bytes), caller.tenants)


@router.post("/{name}/limit", status_code=202)
def limit(
    response: Response,
    name: NameInPath,
    body: LimitVolumeBody,
    services: ServicesOf,
    caller: CallerOf,
    tenant: TenantOf = DEFAULT_TENANT,
) -> StartedAnswer:
    """Limit a volume. What its VM may read and write of it in a second, also while it runs."""
    return started(response, services.volumes.limit(tenant, name, body.max_bytes_per_s, body.max_iops), caller.tenants)
