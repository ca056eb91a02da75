# SPDX-License-Identifier: Apache-2.0
"""What every tenant holds, counted in the transactions that change it.

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

from sqlalchemy import BigInteger, Executable, String, bindparam, func, select, text

from orchestrator.core.tenancy.access import EVERYWHERE
from orchestrator.core.tenancy.quota import Amounts, most_held
from orchestrator.store.records import ClaimLost
from orchestrator.store.statements import Statements, kept
from orchestrator.store.tables import quotas, tenant_usage

_OWN, _POOL = quotas.alias("own"), quotas.alias("pool")
_USED: Final = kept(
    select(tenant_usage.c.resource, tenant_usage.c.used).where(tenant_usage.c.tenant == bindparam("its_tenant"))
)
_OF_POOL: Final = (_POOL.c.tenant == EVERYWHERE) & (_POOL.c.resource == tenant_usage.c.resource)
_OF_OWN: Final = (_OWN.c.tenant == tenant_usage.c.tenant) & (_OWN.c.resource == tenant_usage.c.resource)
_BEYOND: Final = tenant_usage.c.used - func.coalesce(_OWN.c.amount, 0)
_DRAWN: Final = kept(
    select(tenant_usage.c.resource, func.sum(_BEYOND, type_=BigInteger).label("drawn"))
    .join(_POOL, _OF_POOL)
    .outerjoin(_OWN, _OF_OWN)
    .where(tenant_usage.c.tenant != bindparam("besides"), _BEYOND > 0)
    .group_by(tenant_usage.c.resource)
)
_LOCK_POOL: Final = kept(
    select(quotas.c.resource).where(quotas.c.tenant == EVERYWHERE).order_by(quotas.c.resource).with_for_update()
)
"""Always after the tenant's own counters, so that two tenants never wait for each other."""


_RAISE: Final = """
INSERT INTO tenant_usage (tenant, resource, used) VALUES {rows}
ON CONFLICT (tenant, resource) DO UPDATE SET used = tenant_usage.used + excluded.used
RETURNING resource, used,
(SELECT amount FROM quotas q WHERE q.tenant = tenant_usage.tenant AND q.resource = tenant_usage.resource) AS own,
(SELECT amount FROM quotas q WHERE q.tenant = '*' AND q.resource = tenant_usage.resource) AS pool
"""
"""The same on both databases; SQLAlchemy names no table after an INSERT, so that it could not write the limits."""


@cache
def _raise(resources: int) -> Executable:
    """So many counters of one tenant; tells what they have come to, and their limits."""
    rows = ", ".join(f"(:its_tenant, :resource_{at}, :more_{at})" for at in range(resources))
    raised = text(_RAISE.format(rows=rows))
    return kept(raised.columns(resource=String(), used=BigInteger(), own=BigInteger(), pool=BigInteger()))


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
            raised = self._db.execute(_raise(len(more)), values)
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
