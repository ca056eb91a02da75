# SPDX-License-Identifier: Apache-2.0
"""Backups of VMs' disks, and the targets that hold them. A VM's row may be gone before its backups'."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Final

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    String,
    Table,
    Text,
    delete,
    func,
    insert,
    select,
    tuple_,
    update,
)
from sqlalchemy.exc import IntegrityError

from orchestrator.core.errors import Conflict, NotFound
from orchestrator.core.names import near
from orchestrator.core.operation import UNSETTLED
from orchestrator.core.vms.backup import BackedUpVolume, Backup, BackupTarget
from orchestrator.core.vms.boot_check import BootOutcome
from orchestrator.core.vms.disk_snapshot import TakenOf
from orchestrator.store.statements import AnyRow, Statements
from orchestrator.store.tables import metadata, operations

backup_targets: Final = Table(
    "backup_targets", metadata,
    Column("name", String(63), primary_key=True), Column("created_at", Float, nullable=False),
    Column("max_bytes_per_s", BigInteger, nullable=False), Column("s3", Text, nullable=False),
    Column("region", String(63), nullable=False), Column("ca", Text, nullable=False),
)  # fmt: skip
backups: Final = Table(
    "backups", metadata,
    Column("id", String(36), primary_key=True), Column("target", ForeignKey("backup_targets.name"), nullable=False),
    Column("tenant", String(63), nullable=False), Column("vm", String(36), nullable=False),
    Column("vm_name", String(63), nullable=False), Column("host", String(255), nullable=False),
    Column("size_bytes", BigInteger, nullable=False), Column("created_at", Float, nullable=False),
    Column("taken_of", String(10)), Column("added_bytes", BigInteger), Column("policy", String(63)),
    Column("verified_at", Float), Column("unremoved_at", Float), Column("quiesced", String(160)),
    Column("image", String(63)), Column("booted_at", Float), Column("boot_outcome", String(10)),
    Column("boot_line", String(160)), Column("volumes", JSON, nullable=False, server_default="[]"),
    Index("ix_backups_tenant", "tenant", "policy", "vm"), Index("ix_backups_vm", "vm", "policy"),
    Index("ix_backups_page", "tenant", "created_at", "id"), Index("ix_backups_age", "created_at", "id"),
)  # fmt: skip


def secret_id(target: str) -> str:
    """Under which the secret of one is kept."""
    return f"backup_target:{target}"


def keys_id(target: str) -> str:
    """Under which the keys of a bucket are kept."""
    return f"backup_keys:{target}"


class Backups:
    def __init__(self, db: Statements) -> None:
        self._db = db

    def add_target(self, target: BackupTarget) -> None:
        """:raises Conflict: ``backup.target_exists``"""
        if any(known.name == target.name for known in self.targets()):
            hint = "'vgpuctl backup target list' shows it; choose another name"
            raise Conflict("backup.target_exists", f"there is already a backup target {target.name}", hint=hint)
        self._db.execute(insert(backup_targets).values(asdict(target)))

    def targets(self) -> tuple[BackupTarget, ...]:
        """By name."""
        rows = self._db.execute(select(backup_targets).order_by(backup_targets.c.name))
        return tuple(BackupTarget(**row._asdict()) for row in rows)

    def target(self, name: str) -> BackupTarget:
        """:raises NotFound: ``backup.target_unknown``"""
        known = {target.name: target for target in self.targets()}
        if name not in known:
            hint = near(name, known, "vgpuctl backup target list")
            raise NotFound("backup.target_unknown", f"no backup target is called {name[:63]!a}", hint=hint)
        return known[name]

    def limit_target(self, name: str, max_bytes_per_s: int) -> None:
        its = update(backup_targets).where(backup_targets.c.name == name)
        self._db.execute(its.values(max_bytes_per_s=max_bytes_per_s))

    def remove_target(self, name: str) -> None:
        """:raises Conflict: ``backup.target_in_use``"""
        try:
            self._db.execute(delete(backup_targets).where(backup_targets.c.name == name))
        except IntegrityError as error:
            hint = "'vgpuctl backup list -A' and 'vgpuctl backup policy list -A' show them; delete them first"
            raise Conflict("backup.target_in_use", f"backups or policies are of target {name}", hint=hint) from error

    def add(self, backup: Backup) -> None:
        self._db.execute(insert(backups).values(asdict(backup)))

    def list(
        self, tenants: Collection[str] | None, limit: int | None = None, after: tuple[float, str] | None = None
    ) -> tuple[Backup, ...]:
        """Oldest first. ``tenants``: None: of all; ``limit``: None: no limit; ``after``: the moment and the id of the
        one before the first; None: from the first on."""
        query = select(backups).order_by(backups.c.created_at, backups.c.id).limit(limit)
        if tenants is not None:
            query = query.where(backups.c.tenant.in_(tenants))
        if after is not None:
            query = query.where(tuple_(backups.c.created_at, backups.c.id) > after)
        return tuple(map(backup_of, self._db.execute(query)))

    def without_policy(self, tenant: str) -> int:
        """How many of the tenant nothing removes by itself."""
        its = (backups.c.tenant == tenant, backups.c.policy.is_(None))
        return int(self._db.execute(select(func.count()).where(*its)).scalar_one())

    def beginning(self, tenant: str, begin: str) -> tuple[Backup, ...]:
        """Those whose ids begin so, by id, two at most."""
        query = select(backups).where(backups.c.tenant == tenant, backups.c.id.startswith(begin, autoescape=True))
        return tuple(map(backup_of, self._db.execute(query.order_by(backups.c.id).limit(2))))

    def find(self, backup_id: str) -> Backup | None:
        row = self._db.execute(select(backups).where(backups.c.id == backup_id)).one_or_none()
        return None if row is None else backup_of(row)

    def stored(self, backup_id: str, taken_of: TakenOf, quiesced: str | None, added_bytes: int | None) -> None:
        """Gone already is fine."""
        its = update(backups).where(backups.c.id == backup_id)
        self._db.execute(its.values(taken_of=taken_of, quiesced=quiesced, added_bytes=added_bytes))

    def verified(self, backup_id: str, at: float) -> None:
        """It is whole. Gone already is fine."""
        self._db.execute(update(backups).where(backups.c.id == backup_id).values(verified_at=at))

    def booted(self, backup_id: str, at: float, outcome: BootOutcome, line: str) -> None:
        """A copy of it was. Gone already is fine."""
        its = update(backups).where(backups.c.id == backup_id)
        self._db.execute(its.values(booted_at=at, boot_outcome=outcome, boot_line=line))

    def not_removed(self, backup_id: str, at: float) -> None:
        """By its policy, which tried. Gone already is fine."""
        self._db.execute(update(backups).where(backups.c.id == backup_id).values(unremoved_at=at))

    def used_by(self, backup_id: str) -> Mapping[str, str]:
        """Kinds by id of the operations that read or remove it and are not settled. Until the transaction ends nobody
        else asks that about it."""
        self._db.execute(update(backups).where(backups.c.id == backup_id).values(tenant=backups.c.tenant))
        its = (operations.c.inputs["backup"].as_string() == backup_id, operations.c.kind != "back_up_vm")
        query = select(operations.c.id, operations.c.kind).where(*its, operations.c.state.in_(UNSETTLED))
        return {row.id: row.kind for row in self._db.execute(query)}

    def remove(self, backup_id: str) -> None:
        """Gone already is fine."""
        self._db.execute(delete(backups).where(backups.c.id == backup_id))


def backup_of(row: AnyRow) -> Backup:
    values = row._asdict()
    return Backup(**{**values, "volumes": tuple(BackedUpVolume(**each) for each in values["volumes"])})
