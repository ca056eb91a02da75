# SPDX-License-Identifier: Apache-2.0
"""Backups of VMs' disks and data volumes, and the targets that hold them."""

from __future__ import annotations

import re
import secrets
import ssl
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.core.bucket import Bucket, BucketKeys, check_bucket_url
from orchestrator.core.errors import Conflict, InvalidInput, NoCapacity, VgpuctlError
from orchestrator.core.names import check_name
from orchestrator.core.units import show_size
from orchestrator.core.vms.backup import MAX_OF_TENANT, MIN_BYTES_PER_S, BackedUpVolume, Backup, BackupTarget
from orchestrator.core.vms.backup_policy import BackupPolicy
from orchestrator.core.vms.vm import Vm
from orchestrator.core.vms.volume import id_of, written
from orchestrator.operations.steps.backups import inputs_of
from orchestrator.operations.steps.disk_snapshots import CopyOfVolume
from orchestrator.ports.engine import Engine
from orchestrator.services.acting import actor
from orchestrator.services.begin import new_operation, record, running_operation
from orchestrator.services.fleet.index import FleetIndex
from orchestrator.services.messages import Started
from orchestrator.services.tenancy.tenants import known_tenant
from orchestrator.services.vm_checks import check_idle, check_settled, check_state, known_vm
from orchestrator.services.vms.disk_snapshots import VmSnapshots, inputs_of_copies
from orchestrator.services.vms.known_backups import check_finished, check_not_going, check_unread, known_backup
from orchestrator.services.vms.planning import Planner
from orchestrator.services.vms.vm_volumes import check_may_change
from orchestrator.store.backups import keys_id, secret_id
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction

_SECRET_BYTES: Final = 32
_KEY: Final = re.compile(r"[!-~]{1,255}", re.ASCII)
NO_ROOM: Final = frozenset({"snapshot.too_many", "quota.exceeded", "volume.no_capacity", "pool.full", "host.disk"})
"""What a backup with data volumes may be refused for where one of the disk alone is not."""
_SECRET: Final = re.compile(f"[0-9a-f]{{{2 * _SECRET_BYTES}}}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class BackupTargets:
    """Of the site: every tenant's backups may go there."""

    store: Store
    planner: Planner

    def create(self, name: str, secret: str | None = None, bucket: Bucket | None = None) -> BackupTarget:
        """With a secret that passwords of its repositories are derived from. No host is asked: those that have mounted
        it, or reach its bucket, have it. ``secret``: of what is there already; None: one is drawn.

        :raises InvalidInput: ``backup_target.name_invalid``, ``backup.secret_invalid``, ``backup.s3_invalid``,
            ``backup.keys_invalid``, ``backup.ca_invalid``
        :raises Conflict: ``backup.target_exists``"""
        if secret is not None and not _SECRET.fullmatch(secret):
            hint = "'vgpuctl backup target secret NAME FILE' writes it, where the target is known"
            raise InvalidInput("backup.secret_invalid", "that is not the secret of a backup target", hint=hint)
        target = BackupTarget(name=check_name(name, what="backup target"), created_at=self.planner.clock.now())
        if bucket is not None:
            _check_ca(bucket.ca)
            target = replace(target, s3=check_bucket_url(bucket.url), region=bucket.region, ca=bucket.ca)
        with self.store.begin() as tx:
            tx.backups.add_target(target)
            tx.secrets.put(secret_id(name), secret or secrets.token_hex(_SECRET_BYTES))
            if bucket is not None:
                tx.secrets.put(keys_id(name), _stored(bucket.keys))
            self._note(tx, "create_backup_target", name)
        return target

    def change(self, name: str, max_bytes_per_s: int | None = None, keys: BucketKeys | None = None) -> BackupTarget:
        """From the next backup on; None: it stays. ``max_bytes_per_s``: 0: as much as goes; agents that are older than
        that refuse what is limited. ``keys``: what hosts are given for its bucket.

        :raises NotFound: ``backup.target_unknown``; :raises Conflict: ``backup.no_keys``
        :raises InvalidInput: ``backup.limit_invalid``, ``backup.keys_invalid``"""
        if max_bytes_per_s is not None and 0 < max_bytes_per_s < MIN_BYTES_PER_S:
            hint = f"0: no limit, or at least {show_size(MIN_BYTES_PER_S)}"
            raise InvalidInput("backup.limit_invalid", "a backup would never end at that", hint=hint)
        with self.store.begin() as tx:
            target = tx.backups.target(name)
            if keys is not None and not target.s3:
                hint = "'vgpuctl backup target list' shows which are buckets"
                raise Conflict("backup.no_keys", f"backup target {name} is a directory, which has no key", hint=hint)
            if keys is not None:
                tx.secrets.put(keys_id(name), _stored(keys))
                self._note(tx, "rotate_backup_keys", name)
            if max_bytes_per_s is not None:
                tx.backups.limit_target(name, max_bytes_per_s)
                self._note(tx, "limit_backup_target", name)
            return tx.backups.target(name)

    def list(self) -> tuple[BackupTarget, ...]:
        """By name."""
        with self.store.read() as tx:
            return tx.backups.targets()

    def secret(self, name: str) -> str:
        """Whoever has it, and the target's directory, reads all backups in it.

        :raises NotFound: ``backup.target_unknown``"""
        with self.store.begin() as tx:
            tx.backups.target(name)
            self._note(tx, "read_backup_secret", name)
            return tx.secrets.get(secret_id(name))

    def delete(self, name: str) -> None:
        """One without backups; its secret goes.

        :raises NotFound: ``backup.target_unknown``; :raises Conflict: ``backup.target_in_use``"""
        with self.store.begin() as tx:
            tx.backups.target(name)
            tx.backups.remove_target(name)
            tx.secrets.remove(secret_id(name), keys_id(name))
            self._note(tx, "delete_backup_target", name)

    def _note(self, tx: Transaction, action: str, name: str) -> None:
        now = self.planner.clock.now()
        tx.audit.append(at=now, actor=actor(), action=action, subject=name, outcome="done")


@dataclass(frozen=True, kw_only=True)
class WantedBackup:
    """How a VM is to be backed up."""

    target: str
    at: float
    """When it is asked for."""
    policy: BackupPolicy | None = None
    """What asks for it; None: somebody does."""
    volumes: bool = True
    """With the data volumes that the VM writes."""
    left_out: str = ""
    """Why none of those is taken all the same; empty: they are."""


@dataclass(frozen=True, kw_only=True)
class VmBackups:
    """While one is made its VM holds room for a snapshot, while one is restored for two."""

    store: Store
    engine: Engine
    planner: Planner

    def list(
        self, tenants: tuple[str, ...] | None, limit: int | None = None, after: tuple[float, str] | None = None
    ) -> tuple[Backup, ...]:
        """Of these tenants (None: of all), oldest first. ``limit``: at most so many; ``after``: that moment and id."""
        with self.store.read() as tx:
            return tx.backups.list(tenants, limit, after)

    def get(self, tenant: str, backup_id: str) -> Backup:
        """By id, or by how it begins. :raises NotFound: ``backup.unknown``"""
        with self.store.read() as tx:
            return known_backup(tx, tenant, backup_id)

    def run(self, tenant: str, vm_name: str, target: str | None, *, volumes: bool = True) -> Started:
        """Of one that runs, or is stopped. ``target``: None: the only one; ``volumes``: with those that it writes.

        :raises NotFound: ``vm.unknown``, ``backup.target_unknown``
        :raises InvalidInput: ``backup.which_target``; :raises Conflict: ``backup.too_many``, and as a snapshot's
        :raises QuotaExceeded: ``quota.exceeded``
        :raises NoCapacity: ``host.disk``, ``volume.no_capacity``, ``pool.full``"""
        with self.planner.index.current() as fleet, self.store.begin() as tx:
            vm, to = known_vm(tx, tenant, vm_name), known_target(tx, target)
            wanted = WantedBackup(target=to, at=self.planner.clock.now(), volumes=volumes)
            started = self.begin_run(tx, fleet, vm, wanted)
        return self._submitted(started)

    def begin_run(self, tx: Transaction, fleet: FleetIndex, vm: Vm, wanted: WantedBackup) -> Started:
        """Nothing is submitted.

        :raises: as :meth:`run`"""
        policy = wanted.policy
        check_may_change(vm)
        check_settled(tx, vm)
        made = Backup(
            id=self.planner.ids.new_uuid(), target=wanted.target, tenant=vm.spec.tenant, vm=vm.id, vm_name=vm.spec.name,
            host=vm.host, size_bytes=vm.spec.disk_bytes, created_at=wanted.at, image=vm.spec.image,
            policy=None if policy is None else policy.name,
            volumes=_volumes_of(tx, vm, wanted.left_out) if wanted.volumes else (),
        )  # fmt: skip
        _check_one_more(tx, vm, policy)
        name, held = f"backup-{made.id[:8]}", {volume.id for volume in made.stored_volumes}
        of = [volume for volume in written(vm) if id_of(volume) in held]
        copies: tuple[CopyOfVolume, ...] = ()
        try:
            copies = self._snapshots.of_volumes.with_disk(tx, vm, name, of)
            vm, snapshot = self._snapshots.claim(tx, fleet, vm, name, copies)
        except VgpuctlError as error:
            of_disk = copies and error.code == "snapshot.too_many"
            if of and not of_disk and policy is None and error.code in NO_ROOM:
                error.hint = f"{error.hint}; '--no-volumes' backs up the disk alone"
            raise
        tx.backups.add(made)
        inputs = {**inputs_of(made), **inputs_of_copies(copies)}
        return self._snapshots.begin(tx, "back_up_vm", vm, snapshot, inputs, audited=made.id)

    def restore(self, tenant: str, backup_id: str, vm_name: str, *, volumes: bool = True) -> Started:
        """In the place of the disk of any stopped VM of the tenant that is large enough. ``volumes``: and of the data
        volumes that it holds, all of which that VM has.

        :raises NotFound: ``vm.unknown``, ``backup.unknown``
        :raises Conflict: ``backup.unfinished``, ``backup.in_use``, ``backup.larger``, ``vm.busy``: it runs; and as a
            snapshot's; ``volume.not_attached``, ``volume.busy``
        :raises QuotaExceeded: ``quota.exceeded``
        :raises NoCapacity: ``host.disk``, ``volume.no_capacity``, ``pool.full``"""
        with self.planner.index.current() as fleet, self.store.begin() as tx:
            vm, backup = known_vm(tx, tenant, vm_name), known_backup(tx, tenant, backup_id)
            check_finished(backup)
            check_not_going(tx, backup)
            check_may_change(vm)
            check_state(vm, "stopped")
            check_idle(tx, vm)
            if backup.size_bytes > vm.spec.disk_bytes:
                size = show_size(backup.size_bytes)
                hint = f"make a VM with a disk of {size}, stopped, and restore it there"
                raise Conflict("backup.larger", f"the backup is of a disk of {size}, VM {vm_name} has less", hint=hint)
            copies = self._snapshots.of_volumes.to_fetch(tx, vm, backup) if volumes else ()
            vm, snapshot = self._snapshots.claim(tx, fleet, vm, f"backup-{backup.id[:8]}")
            vm, copy = self._snapshots.claim_copy(tx, fleet, vm)
            inputs = {**inputs_of(backup), "copy_id": copy.id, **inputs_of_copies(copies)}
            started = self._snapshots.begin(tx, "restore_backup", vm, snapshot, inputs, audited=backup.id)
        return self._submitted(started)

    def verify(self, tenant: str, backup_id: str) -> Started:
        """:raises NotFound: ``backup.unknown``; :raises Conflict: ``backup.unfinished``
        :raises NoCapacity: ``backup.no_host``"""
        return self._about(tenant, backup_id, "verify_backup")

    def delete(self, tenant: str, backup_id: str) -> Started:
        """Also one that was never made to its end, whose VM was deleted meanwhile.

        :raises NotFound: ``backup.unknown``; :raises Conflict: ``backup.unfinished``, ``backup.in_use``
        :raises NoCapacity: ``backup.no_host``"""
        return self._about(tenant, backup_id, "delete_backup")

    def bring_in(self, target: str, tenant: str, of_tenant: str, host: str | None = None) -> Started:
        """Records of what a target has of ``of_tenant``, as it was called there, for ``tenant``. ``host``: which looks;
        None: any that is ready.

        :raises NotFound: ``backup.target_unknown``, ``tenant.unknown``
        :raises NoCapacity: ``backup.no_host``; :raises Conflict: ``operation.running``: it goes on already"""
        with self.store.begin() as tx:
            known_tenant(tx, tenant)
            name, ready = tx.backups.target(target).name, [host.name for host in tx.observations.ready()]
            chosen = next((each for each in ready if host in {None, each}), None)
            if chosen is None:
                which = "no host" if host is None else f"host {host[:63]!a} is not one that"
                raise NoCapacity("backup.no_host", f"{which} is ready", hint="'vgpuctl host list' shows them")
            subject = f"backups of {name}"
            operation = new_operation("import_backups", subject, clock=self.planner.clock, ids=self.planner.ids)
            inputs: dict[str, object] = {"backup_target": name, "tenant": tenant, "of_tenant": of_tenant}
            record(tx, operation, host=chosen, inputs=inputs)
        return self._submitted(Started(operation=operation.id, name=name))

    def _about(self, tenant: str, backup_id: str, kind: str) -> Started:
        with self.store.begin() as tx:
            backup = known_backup(tx, tenant, backup_id)
            vm = tx.vms.find_id(backup.vm)
            if kind == "verify_backup" or (vm is not None and running_operation(tx, vm) is not None):
                check_finished(backup)
            if kind == "delete_backup":
                check_unread(tx, backup)
            started = self.begin_about(tx, backup, kind)
        return self._submitted(started)

    def begin_about(self, tx: Transaction, backup: Backup, kind: str) -> Started:
        """Where it was made, or where its VM is, whose host has the target if that is backed up; if neither is ready,
        on any other host: the VM may be gone. Nothing is submitted.

        :raises NoCapacity: ``backup.no_host``"""
        ready = [host.name for host in tx.observations.ready()]
        if not ready:
            raise NoCapacity("backup.no_host", "no host is ready", hint="'vgpuctl host list' shows them")
        vm = tx.vms.find_id(backup.vm)
        hosts = (backup.host, None if vm is None else vm.host)
        host = next((host for host in hosts if host in ready), ready[0])
        operation = new_operation(kind, backup, clock=self.planner.clock, ids=self.planner.ids)
        record(tx, operation, host=host, inputs=inputs_of(backup))
        return Started(operation=operation.id, name=backup.id)

    @property
    def _snapshots(self) -> VmSnapshots:
        return VmSnapshots(store=self.store, engine=self.engine, planner=self.planner)

    def _submitted(self, started: Started) -> Started:
        self.engine.submit(str(started.operation))
        return started


def known_target(tx: Transaction, name: str | None) -> str:
    """None: the only one.

    :raises NotFound: ``backup.target_unknown``; :raises InvalidInput: ``backup.which_target``"""
    known = [target.name for target in tx.backups.targets()]
    if name is None and len(known) != 1:
        names = f"of {', '.join(known[:5])}" if known else "'vgpuctl backup target create NAME' makes one"
        hint = f"say which: --target, {names}" if known else names
        raise InvalidInput("backup.which_target", f"there are {len(known)} backup targets", hint=hint)
    return known[0] if name is None else tx.backups.target(name).name


def _stored(keys: BucketKeys) -> str:
    """:raises InvalidInput: ``backup.keys_invalid``"""
    if not all(_KEY.fullmatch(key) for key in (keys.access_key, keys.secret_key)):
        hint = "the file is like ~/.aws/credentials: [default], aws_access_key_id = …, aws_secret_access_key = …"
        raise InvalidInput("backup.keys_invalid", "that is no key of S3", hint=hint)
    return f"{keys.access_key}\n{keys.secret_key}"


def _check_ca(ca: str) -> None:
    """:raises InvalidInput: ``backup.ca_invalid``"""
    try:
        ssl.create_default_context(cadata=ca or None)
    except (ssl.SSLError, ValueError) as error:
        hint = "--ca-file takes PEM: -----BEGIN CERTIFICATE----- and what follows"
        raise InvalidInput("backup.ca_invalid", "these are no certificates to trust", hint=hint) from error


def _volumes_of(tx: Transaction, vm: Vm, left_out: str) -> tuple[BackedUpVolume, ...]:
    """That it writes. What QEMU copies of one that is encrypted is not: it is left out. ``left_out``: why the others
    are too."""
    known = [volume for item in written(vm) if (volume := tx.volumes.find_id(id_of(item))) is not None]
    return tuple(
        BackedUpVolume(
            id=volume.id, name=volume.name, size_bytes=volume.size_bytes,
            left_out="encrypted" if volume.encrypted else left_out,
        )
        for volume in known
    )  # fmt: skip


def _check_one_more(tx: Transaction, vm: Vm, policy: BackupPolicy | None) -> None:
    """A policy's are bounded by what it keeps of each VM: what others have left must not end them before.

    :raises Conflict: ``backup.too_many``"""
    tenant = vm.spec.tenant
    if policy is not None and len(its := tx.backup_policies.backups_of(policy, vm.id)) >= policy.most:
        hint = f"'vgpuctl backup delete {its[0].id} --tenant {tenant}' tells why the oldest cannot be removed"
        words = f"VM {vm.spec.name} has {len(its)} backups of policy {policy.name}, which could not be removed"
        raise Conflict("backup.too_many", words, hint=hint)
    left = tx.backups.without_policy(tenant)
    if left > MAX_OF_TENANT or (policy is None and left == MAX_OF_TENANT):
        raise _too_many(tx, tenant, left)


def _too_many(tx: Transaction, tenant: str, left: int) -> Conflict:
    """``left``: backups of the tenant that no policy removes, one at least."""
    oldest = next(backup for backup in tx.backups.list((tenant,)) if backup.policy is None)
    hint = f"'vgpuctl backup delete {oldest.id} --tenant {tenant}' removes the oldest"
    return Conflict("backup.too_many", f"tenant {tenant} has {left} backups that no policy removes", hint=hint)
