# SPDX-License-Identifier: Apache-2.0
"""What is claimed of each host together, the stamp of its last change, and what every tenant holds.

The stamp is of the transaction that last changed anything there that placement sees, and is written with it. On SQLite
writers come one after the other, and stamps are numbers that grow. On PostgreSQL a stamp is the transaction's id:
transactions end in another order than they begin in, so a reader goes on from the oldest one that was still running
when it read, and what it is told twice it knows by the stamp.

Whoever stores, changes or drops a VM or a volume says by how much its tenant's use changes; the counters are raised
together when the transaction ends, so their rows are locked for as short as can be. Where claims run side by side, the
statement that raises them says what they have come to: of two who want the last piece the second waits for the first,
finds the limit broken and rolls back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from sqlalchemy import BigInteger, ColumnElement, String, bindparam, func, insert, select, text, update
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from orchestrator.core.tenancy.access import EVERYWHERE
from orchestrator.core.tenancy.quota import Amounts, most_held
from orchestrator.core.vms.claim import Claim, HostCapacity
from orchestrator.store.records import ClaimLost
from orchestrator.store.statements import Precompiled, Statements
from orchestrator.store.tables import host_claims, host_usage, quotas, tenant_usage


class _Stamp(FunctionElement[int]):
    """Of the transaction that evaluates it."""

    type = BigInteger()
    inherit_cache = True


class _Oldest(FunctionElement[int]):
    """Every change with a lower stamp is seen by who evaluates it."""

    type = BigInteger()
    inherit_cache = True


@compiles(_Stamp, "sqlite")
def _next_number(_element: _Stamp, _compiler: SQLCompiler, **_: Any) -> str:
    return "(SELECT coalesce(max(changed), 0) + 1 FROM host_usage)"


@compiles(_Stamp, "postgresql")
def _own_id(_element: _Stamp, _compiler: SQLCompiler, **_: Any) -> str:
    return "CAST(CAST(pg_current_xact_id() AS text) AS bigint)"


@compiles(_Oldest, "sqlite")
def _unused_number(_element: _Oldest, _compiler: SQLCompiler, **_: Any) -> str:
    return "(SELECT coalesce(max(changed), 0) + 1 FROM host_usage)"


@compiles(_Oldest, "postgresql")
def _oldest_running(_element: _Oldest, _compiler: SQLCompiler, **_: Any) -> str:
    return "CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint)"


_HOST: Final = host_usage.c.host == bindparam("of_host")
_TOUCH: Final = Precompiled(update(host_usage).where(_HOST).values(changed=_Stamp()))
_NAMES: Final = ("vcpus", "memory_mib", "disk_bytes")
ANY: Final = 2**62
"""A capacity that nothing comes to."""
_MORE: Final = {name: host_usage.c[name] + bindparam(f"more_{name}", type_=BigInteger) for name in _NAMES}
_RAISE: Final = Precompiled(update(host_usage).where(_HOST).values(changed=_Stamp(), **_MORE))


def _with_own(name: str) -> ColumnElement[int]:
    """With what is asked for in the place of what the VM holds there already."""
    own = select(host_claims.c[name]).where(host_claims.c.vm == bindparam("of_vm"), host_claims.c.host == _HOST.right)
    return _MORE[name] - func.coalesce(own.scalar_subquery(), 0)


_RAISED: Final = {name: _with_own(name) for name in _NAMES}
_RAISE_WITHIN: Final = Precompiled(
    update(host_usage)
    .where(_HOST, *(raised <= bindparam(f"most_{name}", type_=BigInteger) for name, raised in _RAISED.items()))
    .values(changed=_Stamp(), **_RAISED)
)
_SINCE: Final = Precompiled(
    select(host_usage.c.host, host_usage.c.changed).where(host_usage.c.changed >= bindparam("since"))
)
_NOW: Final = Precompiled(select(_Oldest()))


class Usage:
    """Of one transaction. What it has touched is stamped at its end: rows are locked for as short as can be."""

    def __init__(self, connection: Statements) -> None:
        self._db = connection
        self._touched: set[str] = set()
        self._stamped: set[str] = set()

    def touch(self, host: str) -> None:
        """Something was changed there that placement sees."""
        self._touched.add(host)

    def begin(self, host: str) -> None:
        """A host that is new, or comes back under its name."""
        if self._db.execute(_TOUCH, {"of_host": host}).rowcount == 0:
            nothing = {"vcpus": 0, "memory_mib": 0, "disk_bytes": 0}
            self._db.execute(insert(host_usage).values(host=host, changed=_Stamp(), **nothing))
        self._stamped.add(host)

    def begin_many(self, new: Sequence[str]) -> None:
        """Hosts that are new, or come back under their names; most have never been there."""
        known = frozenset(self._db.execute(select(host_usage.c.host).where(host_usage.c.host.in_(new))).scalars())
        for host in sorted(known):
            self.begin(host)
        new = [host for host in new if host not in known]
        if not new:
            return
        row = {"vcpus": 0, "memory_mib": 0, "disk_bytes": 0, "changed": self._db.execute(select(_Stamp())).scalar_one()}
        self._db.execute(insert(host_usage), [{"host": host, **row} for host in new])
        self._stamped.update(new)

    def take(self, claim: Claim, capacity: HostCapacity) -> bool:
        """Whether the host has so much left of ``capacity``; then it is the VM's instead of what it held there.

        The row stays locked until the end."""
        more = {f"more_{name}": getattr(claim, name) for name in _NAMES}
        most = {f"most_{name}": getattr(capacity, name) for name in _NAMES}
        taken = self._db.execute(_RAISE_WITHIN, {"of_host": claim.host, "of_vm": claim.vm, **more, **most}).rowcount
        if taken:
            self._stamped.add(claim.host)
        return bool(taken)

    def take_disk(self, claim: Claim, disk_bytes: int) -> bool:
        """As :meth:`take`, of what is claimed of the disk alone; it may come to ``disk_bytes``."""
        return self.take(claim, HostCapacity(vcpus=ANY, memory_mib=ANY, disk_bytes=disk_bytes))

    def give(self, host: str, *, vcpus: int, memory_mib: int, disk_bytes: int) -> None:
        """Back what was taken."""
        given = {"more_vcpus": -vcpus, "more_memory_mib": -memory_mib, "more_disk_bytes": -disk_bytes}
        self._db.execute(_RAISE, {"of_host": host, **given})
        self._stamped.add(host)

    def stamp(self) -> None:
        """Call last. In the order of names, so that two who touch the same hosts never wait for each other."""
        for host in sorted(self._touched - self._stamped):
            self._db.execute(_TOUCH, {"of_host": host})

    def changed(self, since: int) -> tuple[int, dict[str, int]]:
        """Where to go on, and the stamps of the hosts that were changed from there on; some may be known already."""
        position = self._db.execute(_NOW).scalar_one()
        return position, {row.host: row.changed for row in self._db.execute(_SINCE, {"since": since})}


_OWN, _POOL = quotas.alias("own"), quotas.alias("pool")
_USED: Final = Precompiled(
    select(tenant_usage.c.resource, tenant_usage.c.used).where(tenant_usage.c.tenant == bindparam("its_tenant"))
)
_OF_POOL: Final = (_POOL.c.tenant == EVERYWHERE) & (_POOL.c.resource == tenant_usage.c.resource)
_OF_OWN: Final = (_OWN.c.tenant == tenant_usage.c.tenant) & (_OWN.c.resource == tenant_usage.c.resource)
_BEYOND: Final = tenant_usage.c.used - func.coalesce(_OWN.c.amount, 0)
_DRAWN: Final = Precompiled(
    select(tenant_usage.c.resource, func.sum(_BEYOND, type_=BigInteger).label("drawn"))
    .join(_POOL, _OF_POOL)
    .outerjoin(_OWN, _OF_OWN)
    .where(tenant_usage.c.tenant != bindparam("besides"), _BEYOND > 0)
    .group_by(tenant_usage.c.resource)
)
_LIMITED: Final = Precompiled(
    select(tenant_usage.c.resource, tenant_usage.c.used, _OWN.c.amount)
    .join(_OWN, _OF_OWN)
    .outerjoin(_POOL, _OF_POOL)
    .where(_POOL.c.tenant.is_(None))
)
_LOCK_POOL: Final = Precompiled(
    select(quotas.c.resource).where(quotas.c.tenant == EVERYWHERE).order_by(quotas.c.resource).with_for_update()
)
"""Always after the tenant's own counters, so that two tenants never wait for each other."""


_INCREASE: Final = """
INSERT INTO tenant_usage (tenant, resource, used) VALUES {rows}
ON CONFLICT (tenant, resource) DO UPDATE SET used = tenant_usage.used + excluded.used
RETURNING resource, used,
(SELECT amount FROM quotas q WHERE q.tenant = tenant_usage.tenant AND q.resource = tenant_usage.resource) AS own,
(SELECT amount FROM quotas q WHERE q.tenant = '*' AND q.resource = tenant_usage.resource) AS pool
"""
"""The same on both databases; SQLAlchemy names no table after an INSERT, so that it could not write the limits."""


@cache
def _increase(resources: int) -> Precompiled:
    """So many counters of one tenant; tells what they have come to, and their limits."""
    rows = ", ".join(f"(:its_tenant, :resource_{at}, :more_{at})" for at in range(resources))
    raised = text(_INCREASE.format(rows=rows))
    return Precompiled(raised.columns(resource=String(), used=BigInteger(), own=BigInteger(), pool=BigInteger()))


class TenantUsage:
    """Of one transaction."""

    def __init__(self, connection: Statements) -> None:
        self._db = connection
        self._more: dict[str, Counter[str]] = {}

    def change(self, tenant: str, before: Amounts, after: Amounts) -> None:
        """What something of the tenant's held, and holds now."""
        more = self._more.setdefault(tenant, Counter())
        more.update(after)
        more.subtract(before)

    def used(self, tenant: str) -> Counter[str]:
        return Counter({row.resource: row.used for row in self._db.execute(_USED, {"its_tenant": tenant})})

    def drawn(self, besides: str) -> Counter[str]:
        """What all tenants but this one have taken from the pool; ``*``: all of them."""
        return Counter({row.resource: int(row.drawn) for row in self._db.execute(_DRAWN, {"besides": besides})})

    def limited(self) -> list[tuple[str, int, int]]:
        """Resource, what is held of it, limit: of every tenant with a limit of its own and no pool beside it."""
        return [(row.resource, row.used, row.amount) for row in self._db.execute(_LIMITED, {})]

    def write(self, *, within_limits: bool) -> None:
        """Call last. ``within_limits``: others may have taken more meanwhile than was planned with.

        :raises ClaimLost: a quota or the pool is used up; the transaction must be given up
        """
        written, self._more = self._more, {}
        for tenant, changes in sorted(written.items()):
            more = {resource: amount for resource, amount in sorted(changes.items()) if amount}
            if not more:
                continue
            values: dict[str, object] = {"its_tenant": tenant}
            for at, (resource, amount) in enumerate(more.items()):
                values |= {f"resource_{at}": resource, f"more_{at}": amount}
            raised = self._db.execute(_increase(len(more)), values)
            if within_limits:
                self._check(tenant, [row for row in raised if more[row.resource] > 0])

    def _check(self, tenant: str, raised: Sequence[Any]) -> None:
        beyond = [row for row in raised if (row.own, row.pool) != (None, None) and row.used > (row.own or 0)]
        drawn = Counter[str]()
        if any(row.pool is not None for row in beyond):
            self._db.execute(_LOCK_POOL)
            drawn = self.drawn(tenant)
        for row in beyond:
            if row.used > most_held(row.own, row.pool, drawn[row.resource]):
                raise ClaimLost(f"the quota of {row.resource} for tenant {tenant} is used up")
