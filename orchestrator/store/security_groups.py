# SPDX-License-Identifier: Apache-2.0
"""Security groups of tenants, and what they are on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from sqlalchemy import delete, insert, select, update

from orchestrator.core.errors import Conflict
from orchestrator.core.security_groups import GroupUse, SecurityGroup, SecurityRule
from orchestrator.core.tenancy.quota import group_amounts
from orchestrator.store.events import Events
from orchestrator.store.rows import about_of, about_values
from orchestrator.store.statements import AnyRow, Statements
from orchestrator.store.tables import security_group_uses, security_groups
from orchestrator.store.usage import TenantUsage


class SecurityGroups:
    """By tenant and name. A tenant's default group has a row once somebody has changed it."""

    def __init__(self, connection: Statements, tenants: TenantUsage, events: Events) -> None:
        self._db = connection
        self._tenants = tenants
        self._events = events

    def add(self, group: SecurityGroup) -> None:
        """:raises Conflict: ``group.exists``"""
        if any(known.name == group.name for known in self.list(group.tenant)):
            raise Conflict("group.exists", f"there is already a group {group.name}", hint="choose another name")
        self._db.execute(insert(security_groups).values(_values(group)))
        self._tenants.change(group.tenant, {}, group_amounts(group))
        self._put_uses(group.tenant, group.name, group.uses)
        self._note(group.tenant, group.name, "created")

    def update(self, group: SecurityGroup) -> None:
        """By its tenant and name, with what it is on."""
        at = security_groups.c
        its = (at.tenant == group.tenant) & (at.name == group.name)
        for before in self._named(group.tenant, group.name):
            self._tenants.change(group.tenant, group_amounts(before), group_amounts(group))
        self._db.execute(update(security_groups).where(its).values(_values(group)))
        self._put_uses(group.tenant, group.name, group.uses)
        self._note(group.tenant, group.name, "changed")

    def remove(self, tenant: str, name: str) -> None:
        """With what it is on. Gone already is fine."""
        self._put_uses(tenant, name, ())
        for gone in self._named(tenant, name):
            self._tenants.change(tenant, group_amounts(gone), {})
        its = (security_groups.c.tenant == tenant) & (security_groups.c.name == name)
        if self._db.execute(delete(security_groups).where(its)).rowcount:
            self._note(tenant, name, "removed")

    def list(self, tenant: str | None = None) -> tuple[SecurityGroup, ...]:
        """Those with a row, by tenant and name. None: of all tenants."""
        at, on = security_groups.c, security_group_uses.c
        groups = select(security_groups).order_by(at.tenant, at.name)
        uses = select(security_group_uses).order_by(on.vm, on.network)
        if tenant is not None:
            groups, uses = groups.where(at.tenant == tenant), uses.where(on.tenant == tenant)
        of: dict[tuple[str, str], list[GroupUse]] = {}
        for row in self._db.execute(uses):
            of.setdefault((row.tenant, row.name), []).append(GroupUse(vm=row.vm, network=row.network))
        return tuple(_group_of(row, of.get((row.tenant, row.name), ())) for row in self._db.execute(groups))

    def _named(self, tenant: str, name: str) -> Iterable[SecurityGroup]:
        """At most one."""
        return (group for group in self.list(tenant) if group.name == name)

    def _put_uses(self, tenant: str, name: str, uses: Iterable[GroupUse]) -> None:
        on = security_group_uses.c
        self._db.execute(delete(security_group_uses).where((on.tenant == tenant) & (on.name == name)))
        rows = [{"tenant": tenant, "name": name, **asdict(use)} for use in uses]
        if rows:
            self._db.execute(insert(security_group_uses), rows)

    def _note(self, tenant: str, name: str, change: str) -> None:
        self._events.note("security_group", name, change, tenant=tenant)


def _group_of(row: AnyRow, uses: Iterable[GroupUse]) -> SecurityGroup:
    rules = tuple(SecurityRule(**rule) for rule in row.rules)
    return SecurityGroup(
        tenant=row.tenant, name=row.name, rules=rules, uses=tuple(uses), about=about_of(row.about)
    )  # fmt: skip


def _values(group: SecurityGroup) -> dict[str, Any]:
    """The row of :func:`_group_of`; of a rule what it has."""
    rules = [{name: value for name, value in asdict(rule).items() if value} for rule in group.rules]
    return {"tenant": group.tenant, "name": group.name, "rules": rules, "about": about_values(group.about)}
