# SPDX-License-Identifier: Apache-2.0
"""Pools that several hosts mount, and what is claimed in them: once, whichever hosts have them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    String,
    Table,
    bindparam,
    delete,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from orchestrator.core.errors import Conflict
from orchestrator.core.hosts.pool import Pool, PoolState, short_of, unknown_pool
from orchestrator.core.hosts.snapshot import PoolSnapshot
from orchestrator.store.records import ClaimLost
from orchestrator.store.statements import AnyRow, Precompiled, Statements
from orchestrator.store.tables import metadata

pools = Table(
    "pools", metadata,
    Column("id", String(36), primary_key=True), Column("name", String(16), nullable=False, unique=True),
    Column("kind", String(20), nullable=False), Column("state", String(10), nullable=False),
    Column("created_at", Float, nullable=False), Column("capacity_bytes", BigInteger, nullable=False),
    Column("free_bytes", BigInteger, nullable=False), Column("claimed_bytes", BigInteger, nullable=False),
)  # fmt: skip
pool_claims = Table(
    "pool_claims", metadata,
    Column("holder", String(36), primary_key=True), Column("pool", ForeignKey("pools.id"), nullable=False),
    Column("size_bytes", BigInteger, nullable=False), Index("ix_pool_claims_pool", "pool"),
)  # fmt: skip
"""Of a VM's disk or a data volume (``holder``: its id); ``pools.claimed_bytes`` is their sum."""

_MORE: Final = pools.c.claimed_bytes + bindparam("more", type_=BigInteger)
_TAKE: Final = Precompiled(
    update(pools)
    .where(pools.c.id == bindparam("its_id"), pools.c.state == "ready", pools.c.capacity_bytes >= _MORE)
    .values(claimed_bytes=_MORE)
)
_GIVE: Final = Precompiled(update(pools).where(pools.c.id == bindparam("its_id")).values(claimed_bytes=_MORE))
_LET_GO: Final = Precompiled(
    delete(pool_claims).where(pool_claims.c.holder == bindparam("its_holder")).returning(pool_claims)
)
_SEEN: Final = Precompiled(
    update(pools)
    .where(
        pools.c.id == bindparam("its_id"),
        or_(pools.c.capacity_bytes != bindparam("capacity"), pools.c.free_bytes != bindparam("free")),
    )
    .values(capacity_bytes=bindparam("capacity"), free_bytes=bindparam("free"))
)


def let_go_of_pool(db: Statements, holder: str) -> None:
    """Of a VM or volume that is gone; one that held nothing is fine."""
    for row in db.execute(_LET_GO, {"its_holder": holder}).all():
        db.execute(_GIVE, {"its_id": row.pool, "more": -row.size_bytes})


def pools_observed(db: Statements, snapshots: tuple[PoolSnapshot, ...]) -> None:
    """What a host has observed of those that it has: the newest counts, whoever told it."""
    for pool in snapshots:
        if pool.pool_id is not None and pool.problem is None:
            values = {"its_id": pool.pool_id, "capacity": pool.capacity_bytes, "free": pool.free_bytes}
            db.execute(_SEEN, values)


class Pools:
    def __init__(self, db: Statements) -> None:
        self._db = db

    def add(self, pool: Pool) -> None:
        """:raises Conflict: ``pool.exists``"""
        self.check_new(pool.name)
        try:
            self._db.execute(insert(pools).values(asdict(pool)))
        except IntegrityError as error:
            raise _exists(pool.name) from error

    def check_new(self, name: str) -> None:
        """:raises Conflict: ``pool.exists``"""
        if self.find(name) is not None:
            raise _exists(name)

    def find(self, name: str) -> Pool | None:
        row = self._db.execute(select(pools).where(pools.c.name == name)).one_or_none()
        return None if row is None else _pool_of(row)

    def find_id(self, pool_id: str) -> Pool | None:
        row = self._db.execute(select(pools).where(pools.c.id == pool_id)).one_or_none()
        return None if row is None else _pool_of(row)

    def get(self, name: str) -> Pool:
        """By the name that people give it, or that hosts do.

        :raises NotFound: ``pool.unknown``"""
        pool = self.find(short_of(name))
        if pool is None or name not in {pool.name, pool.on_hosts}:
            raise unknown_pool(short_of(name), [known.name for known in self.list()])
        return pool

    def list(self) -> tuple[Pool, ...]:
        """By name."""
        return tuple(_pool_of(row) for row in self._db.execute(select(pools).order_by(pools.c.name)))

    def set_state(self, pool_id: str, state: PoolState) -> None:
        self._db.execute(update(pools).where(pools.c.id == pool_id).values(state=state))

    def observed(self, snapshots: tuple[PoolSnapshot, ...]) -> None:
        """See :func:`pools_observed`."""
        pools_observed(self._db, snapshots)

    def remove(self, pool_id: str) -> None:
        """Gone already is fine."""
        self._db.execute(delete(pools).where(pools.c.id == pool_id))

    def take(self, name: str, holder: str, size_bytes: int) -> None:
        """``name``: as people or hosts call it; ``holder``: id of the VM or volume.

        :raises NotFound: ``pool.unknown``; :raises ClaimLost: it has too little left, or is just being made or deleted
        """
        pool = self.get(name)
        if not self._db.execute(_TAKE, {"its_id": pool.id, "more": size_bytes}).rowcount:
            raise ClaimLost(f"pool {pool.name} has too little left")
        self._db.execute(insert(pool_claims).values(holder=holder, pool=pool.id, size_bytes=size_bytes))


def _pool_of(row: AnyRow) -> Pool:
    return Pool(**row._asdict())


def _exists(name: str) -> Conflict:
    hint = f"'vgpuctl pool show {name}' shows it; choose another name"
    return Conflict("pool.exists", f"there is already a pool {name}", hint=hint)
