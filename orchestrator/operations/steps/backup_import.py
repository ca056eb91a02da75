# SPDX-License-Identifier: Apache-2.0
"""Backups that a target has and the database has not: of another site, or of a database that was lost."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from orchestrator.core.actions.backups import FindRepositories, ListBackups
from orchestrator.core.errors import Fatal, InvalidInput, Unknown
from orchestrator.core.names import check_name
from orchestrator.core.vms.backup import MAX_OF_TENANT, REPOSITORY, Backup
from orchestrator.core.vms.vm import MAX_DISK_BYTES, MIN_DISK_BYTES
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step
from orchestrator.operations.steps.backups import bucket_of, repository_of, too_many
from orchestrator.operations.steps.disk_snapshots import copied
from orchestrator.store.transaction import Transaction

_CLOSED: Final = frozenset({"backup.password", "backup.failed"})
"""What a repository has that is damaged, or of another secret."""
_SHOWN: Final = 20
"""Repositories that a message names."""


def _import(context: Context) -> str:
    """What has a record is left as it is, so that it may be done again. A repository that cannot be opened keeps nobody
    from the others."""
    target = context.text("backup_target")
    with context.world.store.read() as tx:
        finding = FindRepositories(target=target, bucket=bucket_of(tx, target))
    present: list[Backup] = []
    closed: list[str] = []
    for vm in _ids(context, context.perform(finding).message):
        try:
            present += _records(context, vm)
        except Fatal as error:
            if error.code not in _CLOSED:
                raise
            closed.append(f"{vm} ({error.code})")
    with context.world.store.read() as tx:
        new = _new(tx, present)
    context.write_at_end(lambda tx: _add(tx, context.text("tenant"), new))
    text = f"{len(new)} backups of {len({backup.vm for backup in new})} VMs"
    return f"{text}; not opened: {', '.join(closed[:_SHOWN])}" if closed else text


def _records(context: Context, vm: str) -> list[Backup]:
    target = context.text("backup_target")
    with context.world.store.read() as tx:
        opened = repository_of(tx, target, vm)
    lists = ListBackups(backup="", size_bytes=0, tenant=context.text("of_tenant"), **opened)
    message = copied(context, lists).message
    try:
        return [_record(context, vm, *record) for record in json.loads(message)]
    except (ValueError, TypeError, InvalidInput) as error:
        raise _strange(context, error) from error


def _record(context: Context, vm: str, backup_id: str, made: str, size_bytes: int, vm_name: str) -> Backup:
    """Whether its VM ran is not written there: the less is promised. None is newer than now, whatever a clock said.

    :raises ValueError, TypeError, InvalidInput: there is no such backup"""
    if REPOSITORY.fullmatch(backup_id) is None or not MIN_DISK_BYTES <= size_bytes <= MAX_DISK_BYTES:
        raise ValueError(f"{backup_id!a:.40} of {size_bytes!a:.20} bytes")
    return Backup(
        id=backup_id, target=context.text("backup_target"), tenant=context.text("tenant"), vm=vm,
        vm_name=check_name(vm_name, what="vm"), host=context.host_name, size_bytes=int(size_bytes),
        created_at=min(datetime.fromisoformat(made).timestamp(), context.world.clock.now()), taken_of="running",
    )  # fmt: skip


def _new(tx: Transaction, present: Iterable[Backup]) -> list[Backup]:
    """Of VMs that are another tenant's, here or by other backups, nothing."""
    known = {backup.id: backup for backup in tx.backups.list(None)}
    whose = {backup.vm: backup.tenant for backup in known.values()}
    new = []
    for backup in present:
        vm = tx.vms.find_id(backup.vm)
        others = whose.get(backup.vm, backup.tenant) if vm is None else vm.spec.tenant
        if backup.id not in known and others == backup.tenant:
            new.append(backup)
    return new


def _add(tx: Transaction, tenant: str, new: Iterable[Backup]) -> None:
    """:raises Conflict: ``backup.too_many``"""
    left = tx.backups.without_policy(tenant)
    for number, backup in enumerate(_new(tx, new), left):
        if number >= MAX_OF_TENANT:
            raise too_many(tx, tenant, number)
        tx.backups.add(backup)


def _ids(context: Context, message: str) -> list[str]:
    """:raises Unknown: ``agent.answer_invalid``"""
    try:
        return [vm for vm in json.loads(message) if REPOSITORY.fullmatch(vm)]
    except (ValueError, TypeError) as error:
        raise _strange(context, error) from error


def _strange(context: Context, error: Exception) -> Unknown:
    hint = f"'vgpuctl host upgrade-agent {context.host_name}' brings the agent that belongs to this server"
    return Unknown("agent.answer_invalid", "the agent's list of backups is none", hint=hint, details=str(error)[:300])


IMPORT = Step(
    name="import_backups.1", title="look for backups", do=_import, no_undo_reason="it writes at its end alone"
)
