# SPDX-License-Identifier: Apache-2.0
"""/v1/backup-targets, /v1/backups"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response
from pydantic import Field

from orchestrator.api.auth import CallerOf
from orchestrator.api.http_answers import located, started
from orchestrator.api.paging import PagingOf, moment_of
from orchestrator.api.schemas.base import MAX_NAME, AnswerBody, Moment, Name, NameInPath
from orchestrator.api.schemas.operations import StartedAnswer
from orchestrator.api.services import ServicesOf, TenantFilter, TenantOf
from orchestrator.api.visibility import check_may_name_place, watches_pool
from orchestrator.catalogue.described import StrictForm
from orchestrator.core.bucket import MAX_CA, Bucket, BucketKeys
from orchestrator.core.hosts.domain import MAX_BYTES_PER_S as MAX_DISK_BYTES_PER_S
from orchestrator.core.hosts.domain import MAX_IOPS, DiskLimits
from orchestrator.core.tenancy.tenant import DEFAULT_TENANT
from orchestrator.core.vms.backup import MAX_BYTES_PER_S, BackedUpVolume, Backup, BackupTarget
from orchestrator.core.vms.boot_check import DEFAULT_S, MAX_S, BootOutcome
from orchestrator.core.vms.disk_snapshot import TakenOf
from orchestrator.core.vms.image import short_of
from orchestrator.core.vms.vm import MAX_DISK_BYTES, MIN_DISK_BYTES
from orchestrator.services.vms import boot_checks, volumes_of_backups
from orchestrator.services.vms.volumes_of_backups import VolumeOfBackup

IdInPath = Annotated[str, Path(alias="id", max_length=MAX_NAME, description="Its id, or how that begins")]


Key = Annotated[str, Field(max_length=MAX_NAME, repr=False)]


class BucketKeysBody(StrictForm):
    """What hosts may read and write in a bucket with. Never shown."""

    access_key: Key
    """Id of the key."""
    secret_key: Key
    """The key."""


class BucketBody(StrictForm):
    """A place that hosts reach by S3."""

    url: str = Field(max_length=1000)
    """``https://HOST[:PORT]/BUCKET[/PREFIX]``."""
    region: str = Field(default="", max_length=63, pattern="^[A-Za-z0-9-]*$")
    """Of the bucket; empty: its storage has none, or us-east-1."""
    ca: str = Field(default="", max_length=MAX_CA)
    """Certificates in PEM that its server's is signed by; empty: those that hosts trust."""
    keys: BucketKeysBody
    """Hosts are given them with each request."""


class CreateBackupTargetBody(StrictForm, example={"name": "nas"}):
    """A directory that hosts have mounted at ``backups/NAME`` of the agent's directory, or a bucket."""

    name: Name
    """What it is called."""
    secret: str | None = Field(default=None, max_length=MAX_NAME, repr=False)
    """Of a directory that has backups already, as POST /v1/backup-targets/{name}/secret showed it; null: a new one."""
    bucket: BucketBody | None = None
    """null: a directory."""


class ChangeBackupTargetBody(StrictForm, example={"max_bytes_per_s": 104857600}):
    """New values; what is not named stays."""

    max_bytes_per_s: int | None = Field(default=None, ge=0, le=MAX_BYTES_PER_S)
    """What each backup writes there in a second; 0: as much as goes."""
    keys: BucketKeysBody | None = None
    """Of its bucket."""


class BackupTargetAnswer(AnswerBody):
    """A directory that hosts mount, or a bucket, for backups."""

    copied_from = (BackupTarget,)

    name: str
    created_at: Moment
    max_bytes_per_s: int
    s3: str | None
    """Address of the bucket; null: a directory, or for a tenant."""
    region: str | None
    """Of the bucket; null for a tenant."""


class BackupSecretAnswer(AnswerBody):
    """Passwords of the repositories in a target are derived from it."""

    secret: str
    """The password of a VM's repository is the HMAC-SHA-256 of the VM's id with it, in hexadecimal digits."""


class ImportBackupsBody(StrictForm, example={"tenant": "default"}):
    """Whose backups that a target has, and this site does not know of, shall be."""

    tenant: Name
    """Who has them from now on."""
    of_tenant: Name | None = None
    """What their tenant was called when they were made; null: the same."""
    host: Name | None = None
    """Which looks; null: any that is ready."""


class CreateBackupBody(StrictForm, example={"vm": "train"}):
    """A backup of a VM's disk."""

    vm: Name
    """Name of the VM."""
    tenant: Name = DEFAULT_TENANT
    """Whose the VM is, and the backup."""
    target: Name | None = None
    """Where it goes; null: to the only target."""
    volumes: bool = True
    """With the data volumes that the VM writes, at the same moment."""


class RestoreBackupBody(StrictForm, example={"vm": "train"}):
    """In the place of which disk a backup is put."""

    vm: Name
    """Name of a stopped VM of the same tenant."""
    volumes: bool = True
    """And in that of the data volumes that it holds, all of which the VM has."""


class VolumeOfBackupBody(StrictForm, example={"name": "data-of-yesterday", "volume": "data"}):
    """A new data volume with what a backup holds of one."""

    name: Name
    """What the new volume is called."""
    volume: Name | None = None
    """What the one in the backup was called; null: the only one."""
    size_bytes: int | None = Field(default=None, ge=MIN_DISK_BYTES, le=MAX_DISK_BYTES)
    """In bytes, not less than that had; null: as large."""
    host: Name | None = None
    """Host that it lies on; null: that of the backup's VM where it is ready, else another one."""
    pool: Name | None = None
    """Pool that it lies in; ``none``: in none; null: as volumes do."""
    max_bytes_per_s: int = Field(default=0, ge=0, le=MAX_DISK_BYTES_PER_S)
    """What its VM may read and write of it in a second together, in bytes; 0: as much as its offering says."""
    max_iops: int = Field(default=0, ge=0, le=MAX_IOPS)
    """The same in requests."""


class BootBackupBody(StrictForm, example={"timeout_s": 600}):
    """How a backup is tried as a VM."""

    timeout_s: int = Field(default=DEFAULT_S, ge=1, le=MAX_S)
    """How long its console has to ask for a login."""
    profile: str | None = Field(default=None, min_length=1, max_length=MAX_NAME)
    """Offering, vGPU type or MIG profile of the VM; null: that of the VM that the backup is of."""


class BackedUpVolumeAnswer(AnswerBody, copies=BackedUpVolume):
    """A data volume that the VM wrote then."""


class BackupAnswer(AnswerBody):
    """A backup of a VM's disk and data volumes, which may be there when the VM is not."""

    copied_from = (Backup,)

    id: str
    target: str
    tenant: str
    vm: str
    vm_name: str
    host: str | None
    """Which host made it; null for a tenant."""
    size_bytes: int
    created_at: Moment
    taken_of: TakenOf | None
    """What the VM was when it was taken; null: it is being made."""
    quiesced: str | None
    """Whether its file systems were frozen then: yes, no guest agent, or guest agent refused, and why; null: the VM was
    stopped, or that is not known."""
    added_bytes: int | None
    """By how much its repository grew; null: it is being made, or that is not known."""
    image: str | None
    """Base image that the VM was on, as its tenant calls it; null: that is not known."""
    policy: str | None
    """Name of the tenant's policy that made it; null: somebody did, or that is gone."""
    verified_at: Moment | None
    """When it was last found whole; null: it was never verified."""
    booted_at: Moment | None
    """When a copy of it was last booted to see whether it does; null: it never was."""
    boot_outcome: BootOutcome | None
    """login: it asked for one; output: it printed something else; silent: nothing; ended: it did not run any more."""
    boot_line: str | None
    """The last line that its serial console showed then, without control characters."""
    volumes: list[BackedUpVolumeAnswer]


targets = APIRouter(prefix="/backup-targets", tags=["backups"])
backups = APIRouter(prefix="/backups", tags=["backups"])


@targets.get("")
def list_targets(services: ServicesOf, caller: CallerOf) -> list[BackupTargetAnswer]:
    """List backup targets, by name."""
    watching = watches_pool(caller)
    return [_target_answer(target, watching=watching) for target in services.backup_targets.list()]


@targets.post("", status_code=201)
def create_target(response: Response, body: CreateBackupTargetBody, services: ServicesOf) -> BackupTargetAnswer:
    """Create a backup target. Hosts that have mounted it, or reach its bucket, have it."""
    located(response, "backup-targets", body.name)
    its = body.bucket
    bucket = None if its is None else Bucket(url=its.url, region=its.region, ca=its.ca, keys=_keys(its.keys))
    return _target_answer(services.backup_targets.create(body.name, body.secret, bucket))


@targets.patch("/{name}")
def change_target(name: NameInPath, body: ChangeBackupTargetBody, services: ServicesOf) -> BackupTargetAnswer:
    """Change a backup target. How much each backup writes there, and the key of its bucket, from the next one on."""
    keys = None if body.keys is None else _keys(body.keys)
    return _target_answer(services.backup_targets.change(name, body.max_bytes_per_s, keys))


@targets.delete("/{name}", status_code=204)
def delete_target(name: NameInPath, services: ServicesOf) -> None:
    """Delete a backup target that has no backups. Its directory stays as it is."""
    services.backup_targets.delete(name)


@targets.post("/{name}/secret")
def show_secret(name: NameInPath, services: ServicesOf) -> BackupSecretAnswer:
    """Show a target's secret. Without it nobody reads the backups there; that it was shown is audited."""
    return BackupSecretAnswer(secret=services.backup_targets.secret(name))


@targets.post("/{name}/import", status_code=202)
def import_backups(
    response: Response, name: NameInPath, body: ImportBackupsBody, services: ServicesOf
) -> StartedAnswer:
    """Import backups of a target. Of another site, or of a database that was lost; what is known already stays."""
    of_tenant = body.tenant if body.of_tenant is None else body.of_tenant
    return started(response, services.backups.bring_in(name, body.tenant, of_tenant, body.host))


@backups.get("")
def list_backups(
    services: ServicesOf, caller: CallerOf, paging: PagingOf, tenant: TenantFilter = None
) -> list[BackupAnswer]:
    """List backups. Oldest first, also of VMs that are gone."""
    watching, last = watches_pool(caller), paging.after(2)
    after = None if last is None else (moment_of(last[0]), last[1])
    backups = services.backups.list(caller.visible(tenant), paging.limit + 1, after)
    shown = paging.page(list(backups), lambda backup: (repr(backup.created_at), backup.id))
    return [_backup_answer(backup, watching=watching) for backup in shown]


@backups.get("/{id}")
def get_backup(
    backup_id: IdInPath, services: ServicesOf, caller: CallerOf, tenant: TenantOf = DEFAULT_TENANT
) -> BackupAnswer:
    """Get a backup."""
    backup = services.backups.get(tenant, backup_id)
    return _backup_answer(backup, watching=watches_pool(caller))


@backups.post("", status_code=202)
def create_backup(response: Response, body: CreateBackupBody, services: ServicesOf) -> StartedAnswer:
    """Back up a VM's disk and the data volumes that it writes. Of one that runs ``quiesced`` says how."""
    return started(response, services.backups.run(body.tenant, body.vm, body.target, volumes=body.volumes))


@backups.delete("/{id}", status_code=202)
def delete_backup(
    response: Response, backup_id: IdInPath, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT
) -> StartedAnswer:
    """Delete a backup. Others of its VM stay whole."""
    return started(response, services.backups.delete(tenant, backup_id))


@backups.post("/{id}/restore", status_code=202)
def restore_backup(
    response: Response,
    backup_id: IdInPath,
    body: RestoreBackupBody,
    services: ServicesOf,
    tenant: TenantOf = DEFAULT_TENANT,
) -> StartedAnswer:
    """Put a backup in the place of a stopped VM's disk and volumes. What was on them is gone; the backup stays."""
    return started(response, services.backups.restore(tenant, backup_id, body.vm, volumes=body.volumes))


@backups.post("/{id}/volume", status_code=202)
def make_volume(
    response: Response,
    backup_id: IdInPath,
    body: VolumeOfBackupBody,
    services: ServicesOf,
    caller: CallerOf,
    tenant: TenantOf = DEFAULT_TENANT,
) -> StartedAnswer:
    """Make a data volume of what a backup holds of one. No VM has it yet."""
    check_may_name_place(caller, body.host)
    limits = DiskLimits(bytes_per_s=body.max_bytes_per_s, iops=body.max_iops)
    wanted = VolumeOfBackup(
        name=body.name, volume=body.volume, size_bytes=body.size_bytes, host=body.host, pool=body.pool, limits=limits
    )
    return started(response, volumes_of_backups.make_volume(services.volumes, tenant, backup_id, wanted))


@backups.post("/{id}/verify", status_code=202)
def verify_backup(
    response: Response, backup_id: IdInPath, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT
) -> StartedAnswer:
    """Verify a backup. All of it is read and compared with its digests."""
    return started(response, services.backups.verify(tenant, backup_id))


@backups.post("/{id}/boot", status_code=202)
def boot_backup(
    response: Response,
    backup_id: IdInPath,
    services: ServicesOf,
    body: BootBackupBody | None = None,
    tenant: TenantOf = DEFAULT_TENANT,
) -> StartedAnswer:
    """Boot a backup. As a VM without network cards, which is removed once its console has asked for a login."""
    how = body or BootBackupBody()
    return started(response, boot_checks.boot_backup(services.vms, tenant, backup_id, how.profile, how.timeout_s))


def _keys(body: BucketKeysBody) -> BucketKeys:
    return BucketKeys(access_key=body.access_key, secret_key=body.secret_key)


def _backup_answer(backup: Backup, *, watching: bool) -> BackupAnswer:
    image = None if backup.image is None else short_of(backup.image, backup.tenant)
    return BackupAnswer.copied(backup, image=image, host=backup.host if watching else None)


def _target_answer(target: BackupTarget, *, watching: bool = True) -> BackupTargetAnswer:
    shown = {"s3": target.s3 or None, "region": target.region} if watching else {"s3": None, "region": None}
    return BackupTargetAnswer.copied(target, **shown)


router = APIRouter()
router.include_router(targets)
router.include_router(backups)
