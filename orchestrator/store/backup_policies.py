# SPDX-License-Identifier: Apache-2.0
"""Policies of backups, and what each has done last for each of its VMs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Final

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    ColumnElement,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Integer,
    String,
    Table,
    Text,
    and_,
    case,
    delete,
    func,
    insert,
    select,
    update,
)

from orchestrator.core.errors import NotFound
from orchestrator.core.names import near
from orchestrator.core.operation import OperationState
from orchestrator.core.vms.backup import Backup
from orchestrator.core.vms.backup_policy import BackupPolicy, BackupTurn, PolicyBackups
from orchestrator.store.backups import backup_of, backups
from orchestrator.store.statements import AnyRow, Statements
from orchestrator.store.tables import metadata, operations

backup_policies: Final = Table(
    "backup_policies", metadata,
    Column("tenant", String(63), primary_key=True), Column("name", String(63), primary_key=True),
    Column("target", ForeignKey("backup_targets.name"), nullable=False), Column("every_s", Integer, nullable=False),
    Column("window", String(40)), Column("keep_daily", Integer, nullable=False),
    Column("keep_weekly", Integer, nullable=False), Column("keep_monthly", Integer, nullable=False),
    Column("verify_every_s", Integer), Column("vms", JSON, nullable=False), Column("created_at", Float, nullable=False),
    Column("paused", Boolean, nullable=False),
)  # fmt: skip
backup_turns: Final = Table(
    "backup_turns", metadata,
    Column("tenant", String(63), primary_key=True), Column("policy", String(63), primary_key=True),
    Column("vm", ForeignKey("vms.id", ondelete="CASCADE"), primary_key=True, index=True),
    Column("tried_at", Float, nullable=False), Column("operation", String(36)), Column("error", Text),
    ForeignKeyConstraint(("tenant", "policy"), ("backup_policies.tenant", "backup_policies.name"), ondelete="CASCADE"),
)  # fmt: skip

Key = tuple[str, str, str]
"""Tenant, policy and id of the VM."""


class BackupPolicies:
    def __init__(self, db: Statements) -> None:
        self._db = db

    def list(self, tenants: tuple[str, ...] | None = None) -> tuple[BackupPolicy, ...]:
        """By tenant and name. None: of all."""
        query = select(backup_policies).order_by(backup_policies.c.tenant, backup_policies.c.name)
        if tenants is not None:
            query = query.where(backup_policies.c.tenant.in_(tenants))
        rows = self._db.execute(query)
        return tuple(BackupPolicy(**{**row._asdict(), "vms": tuple(row.vms)}) for row in rows)

    def get(self, tenant: str, name: str) -> BackupPolicy:
        """:raises NotFound: ``backup.policy_unknown``"""
        known = {policy.name: policy for policy in self.list((tenant,))}
        if name not in known:
            hint = near(name, known, "vgpuctl backup policy list")
            raise NotFound("backup.policy_unknown", f"no backup policy is called {name[:63]!a}", hint=hint)
        return known[name]

    def add(self, policy: BackupPolicy) -> None:
        self._db.execute(insert(backup_policies).values(_values(policy)))

    def change(self, policy: BackupPolicy) -> None:
        self._db.execute(update(backup_policies).where(_its(policy.tenant, policy.name)).values(_values(policy)))

    def remove(self, tenant: str, name: str) -> None:
        """Its backups stay, as if they were made by hand. Gone already is fine."""
        made = update(backups).where(backups.c.tenant == tenant, backups.c.policy == name)
        self._db.execute(made.values(policy=None))
        self._db.execute(delete(backup_policies).where(_its(tenant, name)))

    def remove_of(self, tenant: str) -> None:
        """All of a tenant that has no backups."""
        self._db.execute(delete(backup_policies).where(backup_policies.c.tenant == tenant))

    def made(self, vm: str | None = None, tenants: tuple[str, ...] | None = None) -> dict[Key, PolicyBackups]:
        """What there is of each policy's for each VM. ``vm``: id of the only one; ``tenants``: only of theirs."""
        its = (backups.c.tenant, backups.c.policy, backups.c.vm)
        whole = case((backups.c.taken_of.is_not(None), backups.c.created_at))
        query = select(
            *its, func.count(whole).label("number"), func.max(whole).label("newest_at"),
            func.max(backups.c.verified_at).label("verified_at"), func.count(backups.c.unremoved_at).label("unremoved"),
        )  # fmt: skip
        query = query.where(backups.c.policy.is_not(None), *([] if vm is None else [backups.c.vm == vm]))
        if tenants is not None:
            query = query.where(backups.c.tenant.in_(tenants))
        return {
            (row.tenant, row.policy, row.vm): PolicyBackups(
                backups=row.number, newest_at=row.newest_at, verified_at=row.verified_at, unremoved=row.unremoved
            )
            for row in self._db.execute(query.group_by(*its))
        }

    def backups_of(self, policy: BackupPolicy, vm: str) -> tuple[Backup, ...]:
        """Of one VM, made to their end, oldest first."""
        query = select(backups).where(
            backups.c.tenant == policy.tenant, backups.c.policy == policy.name, backups.c.vm == vm,
            backups.c.taken_of.is_not(None),
        )  # fmt: skip
        return tuple(map(backup_of, self._db.execute(query.order_by(backups.c.created_at, backups.c.id))))

    def turns(self, tenants: tuple[str, ...] | None = None) -> dict[Key, BackupTurn]:
        """Of these tenants; None: of all."""
        query = select(backup_turns)
        rows = self._db.execute(query if tenants is None else query.where(backup_turns.c.tenant.in_(tenants)))
        return {(row.tenant, row.policy, row.vm): _turn_of(row) for row in rows}

    def states(self, turns: Iterable[BackupTurn]) -> dict[str, tuple[str, OperationState]]:
        """Kinds and states of their operations, as far as those are stored."""
        ids = [turn.operation for turn in turns if turn.operation is not None]
        query = select(operations.c.id, operations.c.kind, operations.c.state).where(operations.c.id.in_(ids))
        return {row.id: (row.kind, row.state) for row in self._db.execute(query)}

    def turn(self, policy: BackupPolicy, vm: str) -> BackupTurn | None:
        its = (backup_turns.c.tenant == policy.tenant, backup_turns.c.policy == policy.name, backup_turns.c.vm == vm)
        row = self._db.execute(select(backup_turns).where(*its)).one_or_none()
        return None if row is None else _turn_of(row)

    def put_turn(self, turn: BackupTurn) -> None:
        its = (
            backup_turns.c.tenant == turn.tenant, backup_turns.c.policy == turn.policy, backup_turns.c.vm == turn.vm,
        )  # fmt: skip
        values = asdict(turn) | {"error": None if turn.error is None else json.dumps(turn.error)}
        if self._db.execute(update(backup_turns).where(*its).values(values)).rowcount == 0:
            self._db.execute(insert(backup_turns).values(values))


def _turn_of(row: AnyRow) -> BackupTurn:
    """An older version wrote the error's message alone."""
    error = row.error
    if error is not None:
        error = json.loads(error) if error.startswith("{") else {"message": error}
    return BackupTurn(**{**row._asdict(), "error": error})


def _its(tenant: str, name: str) -> ColumnElement[bool]:
    return and_(backup_policies.c.tenant == tenant, backup_policies.c.name == name)


def _values(policy: BackupPolicy) -> dict[str, object]:
    return {**asdict(policy), "vms": list(policy.vms)}
