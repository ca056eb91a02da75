# SPDX-License-Identifier: Apache-2.0
"""Backups that a target has and the database has not: of another site, or of a database that was lost."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from itertools import chain, islice
from typing import Any, Final

from orchestrator.core.actions.backups import FindRepositories, ListBackups
from orchestrator.core.errors import Fatal, InvalidInput, Unknown
from orchestrator.core.foreign_json import parse_json
from orchestrator.core.names import check_name, is_uuid
from orchestrator.core.vms.backup import MAX_OF_TENANT, REPOSITORY, BackedUpVolume, Backup
from orchestrator.core.vms.vm import MAX_DISK_BYTES, MIN_DISK_BYTES
from orchestrator.core.vms.volume import MAX_ATTACHED
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step
from orchestrator.operations.steps.backups import bucket_of, repository_of
from orchestrator.operations.steps.disk_snapshots import copied
from orchestrator.store.transaction import Transaction

_CLOSED: Final = frozenset({"backup.password", "backup.failed"})
"""What a repository has that is damaged, or of another secret."""
_SHOWN: Final = 20
"""Repositories that a message names."""


def _import(context: Context) -> str:
    """What has a record is left as it is, so that it may be done again. A repository that cannot be opened, and what is
    no backup in one, keep nobody from the others."""
    target = context.text("backup_target")
    with context.world.store.read() as tx:
        finding = FindRepositories(target=target, bucket=bucket_of(tx, target))
        known = {backup.id for backup in tx.backups.list(None)}  # what of it is removed meanwhile comes not back
    present: dict[str, Backup] = {}
    closed: list[str] = []
    strange = 0
    for vm in _ids(context, context.perform(finding).message):
        try:
            records = [_record_or_none(context, vm, row) for row in _rows(context, vm)]
        except Fatal as error:
            if error.code not in _CLOSED:
                raise
            closed.append(f"{vm} ({error.code})")
            continue
        strange += records.count(None)
        present |= {record.id: record for record in records if record is not None and record.id not in known}
        present = {record.id: record for record in _newest(present.values(), MAX_OF_TENANT)}
    with context.world.store.read() as tx:
        new = _new(tx, present.values())
    context.write_at_end(lambda tx: _add(tx, new))
    left_out = f"; not opened: {', '.join(closed[:_SHOWN])}" if closed else ""
    left_out += f"; no backups that could be: {strange}" if strange else ""
    return f"{len(new)} backups of {len({backup.vm for backup in new})} VMs{left_out}"


def _rows(context: Context, vm: str) -> list[object]:
    target = context.text("backup_target")
    with context.world.store.read() as tx:
        opened = repository_of(tx, target, vm)
    lists = ListBackups(backup="", size_bytes=0, tenant=context.text("of_tenant"), **opened)
    return _list(context, copied(context, lists).message)


def _record_or_none(context: Context, vm: str, row: object) -> Backup | None:
    """Whoever had the repository's password may have put there what is none. Agents of earlier versions tell no
    volumes."""
    try:
        return _record(context, vm, row) if isinstance(row, list) else None
    except (ValueError, TypeError, OverflowError, InvalidInput):
        return None


def _record(context: Context, vm: str, row: list[Any]) -> Backup:
    """Whether its VM ran is not written there: the less is promised. None is newer than now, whatever a clock said.

    :raises ValueError, TypeError, OverflowError, InvalidInput: there is no such backup"""
    backup_id, made, size_bytes, vm_name, *volumes = row
    created_at = min(datetime.fromisoformat(made).timestamp(), context.world.clock.now())
    if REPOSITORY.fullmatch(backup_id) is None or not MIN_DISK_BYTES <= size_bytes <= MAX_DISK_BYTES or created_at < 0:
        raise ValueError(f"{backup_id!a:.40} of {size_bytes!a:.20} bytes")
    return Backup(
        id=backup_id, target=context.text("backup_target"), tenant=context.text("tenant"), vm=vm,
        vm_name=check_name(vm_name, what="vm"), host=context.host_name, size_bytes=int(size_bytes),
        created_at=created_at, taken_of="running",
        volumes=tuple(_volume(*each) for each in islice(chain(*volumes), MAX_ATTACHED)),
    )  # fmt: skip


def _volume(part: str, size_bytes: int) -> BackedUpVolume:
    """:raises ValueError, TypeError, InvalidInput: there is no such volume"""
    name, _, volume = part.partition(".")
    if not is_uuid(volume) or not MIN_DISK_BYTES <= size_bytes <= MAX_DISK_BYTES:
        raise ValueError(f"{part!a:.100} of {size_bytes!a:.20} bytes")
    return BackedUpVolume(id=volume, name=check_name(name, what="volume"), size_bytes=int(size_bytes))


def _new(tx: Transaction, present: Iterable[Backup]) -> list[Backup]:
    """Of VMs that are another tenant's, here or by other backups, nothing; the newest, as many as their tenant may
    have."""
    known = {backup.id: backup for backup in tx.backups.list(None)}
    whose = {backup.vm: backup.tenant for backup in known.values()}
    new = []
    for backup in present:
        vm = tx.vms.find_id(backup.vm)
        others = whose.get(backup.vm, backup.tenant) if vm is None else vm.spec.tenant
        if backup.id not in known and others == backup.tenant:
            new.append(backup)
    return _newest(new, MAX_OF_TENANT - tx.backups.without_policy(new[0].tenant)) if new else []


def _newest(backups: Iterable[Backup], most: int) -> list[Backup]:
    return sorted(backups, key=lambda backup: backup.created_at, reverse=True)[: max(0, most)]


def _add(tx: Transaction, new: Iterable[Backup]) -> None:
    for backup in _new(tx, new):
        tx.backups.add(backup)


def _ids(context: Context, message: str) -> list[str]:
    """:raises Unknown: ``agent.answer_invalid``"""
    vms = (vm for vm in _list(context, message) if isinstance(vm, str) and REPOSITORY.fullmatch(vm))
    return list(dict.fromkeys(vms))


def _list(context: Context, message: str) -> list[object]:
    """:raises Unknown: ``agent.answer_invalid``"""
    try:
        listing = parse_json(message)
    except ValueError as error:
        raise _strange(context, str(error)) from error
    if not isinstance(listing, list):
        raise _strange(context, f"{listing!a:.60}")
    return listing


def _strange(context: Context, why: str) -> Unknown:
    hint = f"'vgpuctl host upgrade-agent {context.host_name}' brings the agent that belongs to this server"
    return Unknown("agent.answer_invalid", "the agent's list of backups is none", hint=hint, details=why[:300])


IMPORT = Step(
    name="import_backups.1", title="look for backups", do=_import, no_undo_reason="it writes at its end alone"
)
