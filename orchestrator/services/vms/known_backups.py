# SPDX-License-Identifier: Apache-2.0
"""Which backup is meant, and whether it may be read or removed now."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.core.errors import Conflict, NotFound
from orchestrator.core.vms.backup import SHORTEST_ID, Backup
from orchestrator.store.transaction import Transaction


def known_backup(tx: Transaction, tenant: str, backup_id: str) -> Backup:
    """By id, or by how it begins. :raises NotFound: ``backup.unknown``"""
    meant = tx.backups.beginning(tenant, backup_id) if len(backup_id) >= SHORTEST_ID else ()
    hint = f"'vgpuctl backup list --tenant {tenant}' shows those that are there"
    if not meant:
        short = "" if len(backup_id) >= SHORTEST_ID else f"write at least {SHORTEST_ID} characters of its id; "
        raise NotFound("backup.unknown", f"no backup is called {backup_id[:63]!a}", hint=short + hint)
    if len(meant) > 1:
        raise NotFound("backup.unknown", f"the ids of several backups begin with {backup_id!a}", hint=hint)
    return meant[0]


def check_finished(backup: Backup) -> None:
    """:raises Conflict: ``backup.unfinished``"""
    if backup.taken_of is None:
        hint = "'vgpuctl operation list' shows what makes it"
        raise Conflict("backup.unfinished", f"backup {backup.id} is being made", hint=hint)


def check_not_going(tx: Transaction, backup: Backup) -> None:
    """That it may be read. Until the transaction ends nobody begins to remove it.

    :raises Conflict: ``backup.in_use``"""
    _check_used(tx, backup, lambda kind: kind == "delete_backup")


def check_unread(tx: Transaction, backup: Backup) -> None:
    """That it may be removed. Until the transaction ends nobody begins to read it.

    :raises Conflict: ``backup.in_use``"""
    _check_used(tx, backup, lambda kind: kind != "delete_backup")


def _check_used(tx: Transaction, backup: Backup, forbids: Callable[[str], bool]) -> None:
    for operation, kind in tx.backups.used_by(backup.id).items():
        if forbids(kind):
            words = f"operation {operation} ({kind.replace('_', ' ')}) works on backup {backup.id}"
            raise Conflict("backup.in_use", words, hint=f"'vgpuctl operation show {operation}' tells how far it is")
