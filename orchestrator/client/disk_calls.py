# SPDX-License-Identifier: Apache-2.0
"""Calls of the API about what is on VMs' disks, snapshots and backups, and what all calls have alike.

``generated/async_disk_calls.py`` is written from this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from orchestrator.client.connection import path_of

if TYPE_CHECKING:
    from orchestrator.client.connection import Connection
    from orchestrator.client.generated import models

Body = Mapping[str, object]


class DiskCalls:
    """Over one connection, which ends with it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def _get(self, path: str, **query: object) -> Any:
        return self.connection.call("GET", path, query=query)

    def _list(self, path: str, **query: object) -> list[Any]:
        return self.connection.pages(path, query)

    def _post(self, path: str, body: Body | None = None, **query: object) -> Any:
        return self.connection.call("POST", path, body if body is not None else {}, query, keyed=True)

    def _ask(self, path: str, body: Body, **query: object) -> Any:
        """By POST what takes no key: its answer is secret, or is to be new each time."""
        return self.connection.call("POST", path, body, query)

    def _delete(self, path: str, **query: object) -> Any:
        return self.connection.call("DELETE", path, query=query)

    def limit_volume(self, name: str, limits: Body, tenant: str) -> models.Started:
        """``max_bytes_per_s``, ``max_iops``; 0: none. Also while a VM runs that has it."""
        return self._post(path_of("volumes", name, "limit"), limits, tenant=tenant)

    def resize_disk(self, name: str, size_bytes: int, tenant: str) -> models.Started:
        """A VM's own, to a larger size, also while it runs."""
        return self._post(path_of("vms", name, "disk"), {"size_bytes": size_bytes}, tenant=tenant)

    def volume_snapshots(self, volume: str, tenant: str) -> list[models.VolumeSnapshot]:
        """Oldest first."""
        return self._get(path_of("volumes", volume, "snapshots"), tenant=tenant)

    def create_volume_snapshot(self, volume: str, tenant: str, snapshot: str) -> models.Started:
        """Of a volume whose VM may run."""
        return self._post(path_of("volumes", volume, "snapshots"), {"name": snapshot}, tenant=tenant)

    def delete_volume_snapshot(self, volume: str, tenant: str, snapshot: str) -> models.Started:
        return self._delete(path_of("volumes", volume, "snapshots", snapshot), tenant=tenant)

    def restore_volume_snapshot(self, volume: str, tenant: str, snapshot: str) -> models.Started:
        """In the place of a volume that no running VM has; what was written since is gone."""
        return self._post(path_of("volumes", volume, "snapshots", snapshot, "restore"), tenant=tenant)

    def copy_volume(self, volume: str, wanted: Body, tenant: str) -> models.Started:
        """Of a snapshot: ``snapshot``, the new ``name``, and what is not to be as it was: ``size_bytes``, limits."""
        return self._post(path_of("volumes", volume, "copy"), wanted, tenant=tenant)

    def snapshots(self, name: str, tenant: str) -> list[models.DiskSnapshot]:
        """Of the VM's disk, oldest first."""
        return self._get(path_of("vms", name, "snapshots"), tenant=tenant)

    def create_snapshot(self, name: str, tenant: str, snapshot: str, *, volumes: bool = False) -> models.Started:
        """Of the disk of a VM, which may run."""
        body = {"name": snapshot} | ({"volumes": True} if volumes else {})
        return self._post(path_of("vms", name, "snapshots"), body, tenant=tenant)

    def delete_snapshot(self, name: str, tenant: str, snapshot: str) -> models.Started:
        return self._delete(path_of("vms", name, "snapshots", snapshot), tenant=tenant)

    def restore_snapshot(self, name: str, tenant: str, snapshot: str) -> models.Started:
        """In the place of the disk of a stopped VM; what was written since is gone."""
        return self._post(path_of("vms", name, "snapshots", snapshot, "restore"), tenant=tenant)

    def create_image(self, vm: str, tenant: str, snapshot: str, image: str) -> models.Started:
        """Of the snapshot; the tenant's own."""
        return self._post(path_of("vms", vm, "snapshots", snapshot, "image"), {"name": image}, tenant=tenant)

    def backup_targets(self) -> list[models.BackupTarget]:
        return self._get(path_of("backup-targets"))

    def create_backup_target(
        self, name: str, secret: str | None = None, bucket: Body | None = None
    ) -> models.BackupTarget:
        """Hosts have it mounted at ``backups/NAME`` of the agent's directory, unless it is a bucket. ``secret``: of one
        that has backups."""
        given = {"secret": secret, "bucket": bucket}
        return self._post(path_of("backup-targets"), {"name": name} | {k: v for k, v in given.items() if v is not None})

    def change_backup_target(self, name: str, values: Body) -> models.BackupTarget:
        """``max_bytes_per_s`` of each backup that is made there; ``keys`` of its bucket."""
        return self.connection.call("PATCH", path_of("backup-targets", name), values)

    def delete_backup_target(self, name: str) -> None:
        self._delete(path_of("backup-targets", name))

    def import_backups(self, name: str, tenant: str, **how: str) -> models.Started:
        """For ``tenant``: ``of_tenant`` as it was called when they were made, by ``host``."""
        return self._post(path_of("backup-targets", name, "import"), {"tenant": tenant, **how})

    def backup_secret(self, name: str) -> models.BackupSecret:
        """What passwords of a target's repositories are derived from."""
        return self._ask(path_of("backup-targets", name, "secret"), {})

    def backup_policies(self, tenant: str | None) -> list[models.BackupPolicy]:
        """By tenant and name; None: of all tenants that you may know of."""
        return self._get(path_of("backup-policies"), **({} if tenant is None else {"tenant": tenant}))

    def backup_policy(self, name: str, tenant: str) -> models.BackupPolicy:
        """With how its VMs stand."""
        return self._get(path_of("backup-policies", name), tenant=tenant)

    def create_backup_policy(self, policy: Body) -> models.BackupPolicy:
        """``name``, ``tenant``, ``vms`` and what else is to be otherwise than usual."""
        return self._post(path_of("backup-policies"), policy)

    def change_backup_policy(self, name: str, tenant: str, values: Body) -> models.BackupPolicy:
        """What is not named stays."""
        return self.connection.call("PATCH", path_of("backup-policies", name), values, {"tenant": tenant})

    def delete_backup_policy(self, name: str, tenant: str) -> None:
        """Its backups stay."""
        self._delete(path_of("backup-policies", name), tenant=tenant)

    def backups(self, tenant: str | None) -> list[models.Backup]:
        """Oldest first; None: of all tenants that you may know of."""
        return self.connection.pages(path_of("backups"), {} if tenant is None else {"tenant": tenant})

    def backup(self, backup_id: str, tenant: str) -> models.Backup:
        return self._get(path_of("backups", backup_id), tenant=tenant)

    def create_backup(self, vm: str, tenant: str, target: str | None, *, volumes: bool = True) -> models.Started:
        """Of the disk of a VM, which may run, and of the data volumes that it writes. ``target``: None: the only
        one."""
        body = {"vm": vm, "tenant": tenant} | ({} if target is None else {"target": target})
        return self._post(path_of("backups"), body | ({} if volumes else {"volumes": False}))

    def restore_backup(self, backup_id: str, vm: str, tenant: str, *, volumes: bool = True) -> models.Started:
        """In the place of the disk and the data volumes of a stopped VM; what was on them is gone."""
        body = {"vm": vm} | ({} if volumes else {"volumes": False})
        return self._post(path_of("backups", backup_id, "restore"), body, tenant=tenant)

    def volume_of_backup(self, backup_id: str, wanted: Body, tenant: str) -> models.Started:
        """A new one: ``name``, of which ``volume`` in it (else the only one), and what is not to be as usual: ``host``
        or ``pool``, ``size_bytes``, limits."""
        return self._post(path_of("backups", backup_id, "volume"), wanted, tenant=tenant)

    def verify_backup(self, backup_id: str, tenant: str) -> models.Started:
        """All of it is read."""
        return self._post(path_of("backups", backup_id, "verify"), tenant=tenant)

    def boot_backup(
        self, backup_id: str, tenant: str, timeout_s: int | None = None, profile: str | None = None
    ) -> models.Started:
        """As a VM without network cards, removed once its console has asked for a login or ``timeout_s`` are over."""
        how = {"timeout_s": timeout_s, "profile": profile}
        body = {name: value for name, value in how.items() if value is not None}
        return self._post(path_of("backups", backup_id, "boot"), body, tenant=tenant)

    def delete_backup(self, backup_id: str, tenant: str) -> models.Started:
        return self._delete(path_of("backups", backup_id), tenant=tenant)

    def tenant_key(self, name: str) -> models.TenantKey:
        """What is known of it."""
        return self._get(path_of("tenants", name, "key"))

    def rotate_tenant_key(self, name: str, key: str | None = None) -> models.TenantKey:
        """What is on its encrypted disks and volumes stays. ``key``: the tenant's own, 32 bytes in base64; None: one is
        drawn."""
        return self._post(path_of("tenants", name, "key", "rotate"), {} if key is None else {"key": key})

    def revoke_tenant_key(self, name: str) -> models.TenantKeyRevoked:
        """What is on its encrypted disks and volumes is gone."""
        return self._post(path_of("tenants", name, "key", "revoke"))
