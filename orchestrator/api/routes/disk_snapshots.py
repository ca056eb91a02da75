# SPDX-License-Identifier: Apache-2.0
"""/v1/vms/{name}/snapshots and /disk"""

from __future__ import annotations

from fastapi import APIRouter, Response
from pydantic import Field

from orchestrator.api.http_answers import started
from orchestrator.api.schemas.base import Name, NameInPath, VmInPath
from orchestrator.api.schemas.operations import StartedAnswer
from orchestrator.api.schemas.vm_parts import DiskSnapshotAnswer, snapshot_members
from orchestrator.api.services import ServicesOf, TenantOf
from orchestrator.catalogue.described import StrictForm
from orchestrator.core.tenancy.tenant import DEFAULT_TENANT
from orchestrator.core.vms.vm import MAX_DISK_BYTES, MIN_DISK_BYTES


class CreateSnapshotBody(StrictForm, example={"name": "before-upgrade"}):
    """A snapshot of a data volume."""

    name: Name
    """What it is called."""


class CreateDiskSnapshotBody(StrictForm, example={"name": "before-upgrade", "volumes": True}):
    """A snapshot of a VM's disk."""

    name: Name
    """What it is called."""
    volumes: bool = False
    """Whether the data volumes that the VM writes are copied at the same moment."""


class CreateImageBody(StrictForm, example={"name": "trained"}):
    """A base image of a snapshot."""

    name: Name
    """What it is called, among the images of the VM's tenant, whose alone it is."""


class ResizeDiskBody(StrictForm, example={"size_bytes": 42949672960}):
    """How large the VM's disk becomes."""

    size_bytes: int = Field(ge=MIN_DISK_BYTES, le=MAX_DISK_BYTES)
    """In bytes; not less than it has."""


router = APIRouter(prefix="/vms", tags=["vms"])


@router.post("/{name}/disk", status_code=202)
def resize_disk(
    response: Response, name: VmInPath, body: ResizeDiskBody, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT
) -> StartedAnswer:
    """Resize a VM's disk. It becomes larger, also while the VM runs; none ever shrinks."""
    return started(response, services.disk_growth.resize(tenant, name, body.size_bytes))


@router.get("/{name}/snapshots")
def list_snapshots(name: VmInPath, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT) -> list[DiskSnapshotAnswer]:
    """List the snapshots of a VM's disk. Oldest first."""
    snapshots = services.disk_snapshots.list(tenant, name)
    return [DiskSnapshotAnswer.model_validate(snapshot_members(snapshot)) for snapshot in snapshots]


@router.post("/{name}/snapshots", status_code=202)
def create_snapshot(
    response: Response, name: VmInPath, body: CreateDiskSnapshotBody, services: ServicesOf,
    tenant: TenantOf = DEFAULT_TENANT,
) -> StartedAnswer:  # fmt: skip
    """Take a snapshot of a VM's disk. Of one that runs ``quiesced`` says how."""
    return started(response, services.disk_snapshots.create(tenant, name, body.name, volumes=body.volumes))


@router.delete("/{name}/snapshots/{snapshot}", status_code=202)
def delete_snapshot(
    response: Response, name: VmInPath, snapshot: NameInPath, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT
) -> StartedAnswer:
    """Delete a snapshot, with those of volumes. The VM's disk stays as it is."""
    return started(response, services.disk_snapshots.delete(tenant, name, snapshot))


@router.post("/{name}/snapshots/{snapshot}/restore", status_code=202)
def restore_snapshot(
    response: Response, name: VmInPath, snapshot: NameInPath, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT
) -> StartedAnswer:
    """Put a snapshot in the place of a stopped VM's disk. Those of volumes too; what was written since is gone."""
    return started(response, services.disk_snapshots.restore(tenant, name, snapshot))


@router.post("/{name}/snapshots/{snapshot}/image", status_code=202)
def create_image(
    response: Response, name: VmInPath, snapshot: NameInPath, body: CreateImageBody, services: ServicesOf,
    tenant: TenantOf = DEFAULT_TENANT,
) -> StartedAnswer:  # fmt: skip
    """Make a base image of a snapshot. It is the tenant's own, and VMs of it go to any host."""
    return started(response, services.disk_snapshots.image(tenant, name, snapshot, body.name))
