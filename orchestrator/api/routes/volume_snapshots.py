# SPDX-License-Identifier: Apache-2.0
"""/v1/volumes/{name}/snapshots"""

from __future__ import annotations

from fastapi import APIRouter, Response
from pydantic import Field

from orchestrator.api.auth import CallerOf
from orchestrator.api.http_answers import started
from orchestrator.api.routes.disk_snapshots import CreateSnapshotBody
from orchestrator.api.schemas.base import AnswerBody, Moment, Name, NameInPath
from orchestrator.api.schemas.operations import StartedAnswer
from orchestrator.api.services import ServicesOf, TenantOf
from orchestrator.catalogue.described import StrictForm
from orchestrator.core.hosts.domain import MAX_BYTES_PER_S, MAX_IOPS, DiskLimits
from orchestrator.core.tenancy.tenant import DEFAULT_TENANT
from orchestrator.core.vms.vm import MAX_DISK_BYTES, MIN_DISK_BYTES
from orchestrator.core.vms.volume import Volume, VolumeState


class CopySnapshotBody(StrictForm, example={"snapshot": "before-upgrade", "name": "twin"}):
    """A new data volume with what is on a snapshot."""

    snapshot: Name
    """Which one."""
    name: Name
    """What the new volume is called."""
    size_bytes: int | None = Field(default=None, ge=MIN_DISK_BYTES, le=MAX_DISK_BYTES)
    """In bytes, not less than the snapshot has; null: as large."""
    pool: Name | None = None
    """Where it lies; ``none``: on a host's own disk; null: where the snapshot does."""
    max_bytes_per_s: int = Field(default=0, ge=0, le=MAX_BYTES_PER_S)
    """What its VM may read and write of it in a second together, in bytes; 0: as much as its offering says."""
    max_iops: int = Field(default=0, ge=0, le=MAX_IOPS)
    """The same in requests."""


class VolumeSnapshotAnswer(AnswerBody):
    """What was on a data volume at one moment."""

    copied_from = (Volume,)

    id: str
    name: str
    """What it is called, among those of its volume."""
    size_bytes: int
    state: VolumeState
    """copying: it is being taken; lost: its host was given up, it can only be deleted."""
    quiesced: str | None
    """Whether the guest's file systems were frozen then: yes, no guest agent, or guest agent refused, and why; null: no
    VM ran that had the volume, or that is not known."""
    created_at: Moment
    taken_with: str | None
    """VM/SNAPSHOT of a disk that it was taken with at one moment, and with which it goes; null: it was taken alone, or
    the VM is gone."""

    @classmethod
    def of(cls, snapshot: Volume, taken_with: str | None = None) -> VolumeSnapshotAnswer:
        return cls.copied(snapshot, name=snapshot.name.rpartition("/")[2], taken_with=taken_with)


router = APIRouter(prefix="/volumes", tags=["volumes"])


@router.get("/{name}/snapshots")
def list_snapshots(
    name: NameInPath, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT
) -> list[VolumeSnapshotAnswer]:
    """List the snapshots of a volume. Oldest first."""
    snapshots, taken_with = services.volume_snapshots.list(tenant, name), services.volume_snapshots.taken_with(tenant)
    return [VolumeSnapshotAnswer.of(each, taken_with.get(each.id)) for each in snapshots]


@router.post("/{name}/snapshots", status_code=202)
def create_snapshot(
    response: Response, name: NameInPath, body: CreateSnapshotBody, services: ServicesOf, caller: CallerOf,
    tenant: TenantOf = DEFAULT_TENANT,
) -> StartedAnswer:  # fmt: skip
    """Take a snapshot of a volume. Of one that runs ``quiesced`` says how."""
    return started(response, services.volume_snapshots.create(tenant, name, body.name), caller.tenants)


@router.delete("/{name}/snapshots/{snapshot}", status_code=202)
def delete_snapshot(
    response: Response, name: NameInPath, snapshot: NameInPath, services: ServicesOf, caller: CallerOf,
    tenant: TenantOf = DEFAULT_TENANT,
) -> StartedAnswer:  # fmt: skip
    """Delete a snapshot of a volume. The volume stays as it is."""
    return started(response, services.volume_snapshots.delete(tenant, name, snapshot), caller.tenants)


@router.post("/{name}/snapshots/{snapshot}/restore", status_code=202)
def restore_snapshot(
    response: Response, name: NameInPath, snapshot: NameInPath, services: ServicesOf, caller: CallerOf,
    tenant: TenantOf = DEFAULT_TENANT,
) -> StartedAnswer:  # fmt: skip
    """Put a snapshot in the place of a volume that no running VM has. What was written since is gone."""
    return started(response, services.volume_snapshots.restore(tenant, name, snapshot), caller.tenants)


@router.post("/{name}/copy", status_code=202)
def copy_snapshot(
    response: Response, name: NameInPath, body: CopySnapshotBody, services: ServicesOf, caller: CallerOf,
    tenant: TenantOf = DEFAULT_TENANT,
) -> StartedAnswer:  # fmt: skip
    """Make a volume of a snapshot. It lies where the snapshot does, or in another pool."""
    limits = DiskLimits(bytes_per_s=body.max_bytes_per_s, iops=body.max_iops)
    copied = services.volume_snapshots.copy(
        tenant, (name, body.snapshot), body.name, body.size_bytes, limits, body.pool
    )
    return started(response, copied, caller.tenants)
