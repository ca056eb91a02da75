# SPDX-License-Identifier: Apache-2.0
"""New data volumes of what backups hold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.core.errors import InvalidInput, NoCapacity, NotFound
from orchestrator.core.hosts.domain import DiskLimits
from orchestrator.core.hosts.pool import NO_POOL
from orchestrator.core.labels import kept_from
from orchestrator.core.names import check_name
from orchestrator.core.units import show_size
from orchestrator.core.vms.backup import BackedUpVolume, Backup
from orchestrator.core.vms.volume import Volume
from orchestrator.operations.steps.backups import inputs_of
from orchestrator.services.begin import new_operation, record
from orchestrator.services.messages import Started
from orchestrator.services.pools import pool_on_hosts, reaching
from orchestrator.services.vms.known_backups import check_finished, check_not_going, known_backup
from orchestrator.services.vms.volume_claims import (
    add,
    capacity_on,
    check_fits,
    check_limits,
    check_may_be_encrypted,
    check_size,
)
from orchestrator.services.vms.volumes import NO_LIMITS, VolumeService, check_not_kept
from orchestrator.store.transaction import Transaction


@dataclass(frozen=True, kw_only=True)
class VolumeOfBackup:
    """A data volume that is to be made of one that a backup holds."""

    name: str
    volume: str | None = None
    """What that one was called; None: the only one."""
    size_bytes: int | None = None
    """None: as large as that one was."""
    host: str | None = None
    """Where it shall lie; None: in ``pool``, or where a host is ready: best that of the backup's VM."""
    pool: str | None = None
    limits: DiskLimits = NO_LIMITS


def make_volume(volumes: VolumeService, tenant: str, backup_id: str, wanted: VolumeOfBackup) -> Started:
    """It is the host on which it lies, or one that reaches its pool, that needs the backup's target.

    :raises NotFound: ``backup.unknown``, ``backup.no_volume``, ``host.unknown``
    :raises InvalidInput: ``backup.which_volume``, ``volume.name_invalid``, ``volume.limits_invalid``,
        ``volume.host_and_pool``, ``volume.out_of_range``, ``disk.too_small``
    :raises Conflict: ``backup.unfinished``, ``backup.in_use``, ``volume.exists``, ``volume.used_up``
    :raises QuotaExceeded: ``quota.exceeded``, ``encryption.required``
    :raises NoCapacity: ``backup.no_host``, ``volume.no_capacity``, ``host.not_ready``, ``host.kept``, ``pool.full``"""
    check_name(wanted.name, what="volume")
    check_limits(wanted.limits)
    if wanted.host is not None and wanted.pool not in {None, NO_POOL}:
        raise InvalidInput("volume.host_and_pool", "a volume in a pool lies on no host", hint="name one of both")
    planner = volumes.planner
    with volumes.store.begin() as tx:
        backup = known_backup(tx, tenant, backup_id)
        check_finished(backup)
        check_not_going(tx, backup)
        held = _held(backup, wanted.volume)
        pool = None if wanted.host is not None else pool_on_hosts(tx, wanted.pool, tenant)
        made = Volume(
            id=planner.ids.new_uuid(), tenant=tenant, name=wanted.name, size_bytes=_size(wanted, held),
            host=None if pool is not None else wanted.host or _host(tx, backup), vm=None, state="copying",
            created_at=planner.clock.now(), pool=pool, max_bytes_per_s=wanted.limits.bytes_per_s or None,
            max_iops=wanted.limits.iops or None,
        )  # fmt: skip
        check_not_kept(tx, tenant, made.host)
        check_may_be_encrypted(tx, made)
        check_fits(tx, made)
        add(tx, made, None if made.host is None else capacity_on(planner, volumes.store, made.host))
        operation = new_operation("fetch_volume", made, clock=planner.clock, ids=planner.ids)
        inputs = {"made": made.fields(), "part": held.part, **inputs_of(backup)}
        record(tx, operation, host=made.host or reaching(planner, str(pool)), inputs=inputs, said=made.name)
    volumes.engine.submit(operation.id)
    return Started(operation=operation.id, name=made.name)


def _held(backup: Backup, name: str | None) -> BackedUpVolume:
    """:raises NotFound: ``backup.no_volume``; :raises InvalidInput: ``backup.which_volume``"""
    held = backup.stored_volumes
    if name is None and len(held) == 1:
        return held[0]
    if name is None and held:
        hint = f"say which: --from-backup {backup.id}/{held[0].name}; it holds {_names(held)}"
        raise InvalidInput("backup.which_volume", f"backup {backup.id} holds {len(held)} volumes", hint=hint)
    chosen = next((volume for volume in held if volume.name == name), None)
    if chosen is None:
        why = next((volume.left_out for volume in backup.volumes if volume.name == name), "")
        left_out = f": {'it was encrypted' if why == 'encrypted' else why}" if why else ""
        what = "no volumes" if name is None else f"no volume {name[:63]!a}{left_out}"
        hint = f"it holds {_names(held)}" if held else f"'vgpuctl backup list --tenant {backup.tenant}' shows others"
        raise NotFound("backup.no_volume", f"backup {backup.id} holds {what}", hint=hint)
    return chosen


def _names(volumes: Iterable[BackedUpVolume]) -> str:
    return ", ".join(volume.name for volume in volumes)


def _size(wanted: VolumeOfBackup, held: BackedUpVolume) -> int:
    size = held.size_bytes if wanted.size_bytes is None else wanted.size_bytes
    check_size(size)
    if size < held.size_bytes:
        words = f"a volume of {show_size(size)} is smaller than volume {held.name} was"
        raise InvalidInput("disk.too_small", words, hint=f"ask for at least {show_size(held.size_bytes)}")
    return size


def _host(tx: Transaction, backup: Backup) -> str:
    """:raises NoCapacity: ``backup.no_host``, ``host.kept``"""
    hosts, vm = tx.observations.ready(), tx.vms.find_id(backup.vm)
    ready = [host.name for host in hosts if kept_from(host.labels, backup.tenant) is None]
    if hosts and not ready:
        check_not_kept(tx, backup.tenant, hosts[0].name)
    near = (None if vm is None else vm.host, backup.host, *ready[:1])
    chosen = next((host for host in near if host in ready), None)
    if chosen is None:
        raise NoCapacity("backup.no_host", "no host is ready", hint="'vgpuctl host list' shows them")
    return chosen
