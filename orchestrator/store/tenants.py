# SPDX-License-Identifier: Apache-2.0
"""Tenants, members, tokens, quotas, policies, idempotency keys."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from sqlalchemy import bindparam, delete, insert, or_, select, update

from orchestrator.core.maintenance.leaving import STOP
from orchestrator.core.tenancy.access import EVERYWHERE
from orchestrator.core.tenancy.quota import Amounts, Limit
from orchestrator.core.tenancy.request_key import StoredRequest
from orchestrator.core.tenancy.tenant import ApiToken, Member, Tenant
from orchestrator.core.vms.isolation import DEFAULT_ISOLATION, Isolation
from orchestrator.core.vms.lease import TenantPolicy
from orchestrator.store.events import Events
from orchestrator.store.rows import about_of, about_values
from orchestrator.store.statements import AnyRow, Precompiled, Statements
from orchestrator.store.tables import (
    members,
    observations,
    policies,
    quotas,
    request_keys,
    tenant_usage,
    tenants,
    tokens,
    vms,
)
from orchestrator.store.usage import TenantUsage
from orchestrator.store.volume_keys import destroy, own_row, tenant_row

# Put together once, as that takes longer than asking.
_TENANT: Final = Precompiled(select(tenants).where(tenants.c.name == bindparam("its_name")))
_LIMITS: Final = Precompiled(select(quotas).order_by(quotas.c.tenant, quotas.c.resource))
_TOKEN: Final = Precompiled(select(tokens).where(tokens.c.id == bindparam("its_id")))
_POLICY: Final = Precompiled(select(policies.c.document).where(policies.c.tenant == bindparam("its_tenant")))


def _tenant_of(row: AnyRow) -> Tenant:
    return Tenant(name=row.name, created_at=row.created_at, about=about_of(row.about))


def _tenant_values(tenant: Tenant) -> dict[str, object]:
    return {"name": tenant.name, "created_at": tenant.created_at, "about": about_values(tenant.about)}


class Tenants:
    """Tenants and their members."""

    def __init__(self, connection: Statements, events: Events) -> None:
        self._db = connection
        self._events = events

    def add(self, tenant: Tenant) -> None:
        self._db.execute(insert(tenants).values(_tenant_values(tenant)))
        self._events.note("tenant", tenant.name, "created", tenant=tenant.name)

    def update(self, tenant: Tenant) -> None:
        """By its name."""
        self._db.execute(update(tenants).where(tenants.c.name == tenant.name).values(_tenant_values(tenant)))
        self._events.note("tenant", tenant.name, "changed", tenant=tenant.name)

    def find(self, name: str) -> Tenant | None:
        row = self._db.execute(_TENANT, {"its_name": name}).one_or_none()
        return None if row is None else _tenant_of(row)

    def list(self) -> tuple[Tenant, ...]:
        """By name."""
        return tuple(map(_tenant_of, self._db.execute(select(tenants).order_by(tenants.c.name))))

    def remove(self, name: str) -> None:
        """With its members, tokens, quota, policy and key; its events are nobody's. Gone already is fine."""
        self._events.disown(name)
        destroy(self._db, tenant_row(name), own_row(name))
        self._db.execute(delete(policies).where(policies.c.tenant == name))
        self._db.execute(delete(quotas).where(quotas.c.tenant == name))
        self._db.execute(delete(tenant_usage).where(tenant_usage.c.tenant == name))
        self._db.execute(delete(members).where(members.c.tenant == name))
        self._db.execute(delete(tokens).where(tokens.c.tenant == name))
        if self._db.execute(delete(tenants).where(tenants.c.name == name)).rowcount:
            self._events.note("tenant", name, "removed")

    def put_member(self, member: Member) -> None:
        """Replaces the role that the subject had there."""
        self._drop_member(member.tenant, member.subject)
        self._db.execute(insert(members).values(asdict(member)))
        self._note_members(member.tenant)

    def remove_member(self, tenant: str, subject: str) -> None:
        if self._drop_member(tenant, subject):
            self._note_members(tenant)

    def _drop_member(self, tenant: str, subject: str) -> int:
        return self._db.execute(
            delete(members).where(members.c.tenant == tenant, members.c.subject == subject)
        ).rowcount

    def _note_members(self, tenant: str) -> None:
        """Who they are is told by the list of members, to those who may read it."""
        self._events.note("tenant", tenant, "members", tenant=_owner(tenant))

    def members(self, *, tenant: str | None = None, subject: str | None = None) -> tuple[Member, ...]:
        """By tenant and subject."""
        query = select(members).order_by(members.c.tenant, members.c.subject)
        if tenant is not None:
            query = query.where(members.c.tenant == tenant)
        if subject is not None:
            query = query.where(members.c.subject == subject)
        return tuple(Member(**row._asdict()) for row in self._db.execute(query))


def _owner(tenant: str) -> str | None:
    """Whose an event is about ``tenant``; ``*`` stands for the pool."""
    return None if tenant == EVERYWHERE else tenant


class Tokens:
    """Tokens, by their digests."""

    def __init__(self, connection: Statements, events: Events) -> None:
        self._db = connection
        self._events = events

    def add(self, token: ApiToken) -> None:
        self._events.note("token", token.id, "created", tenant=_owner(token.tenant), role=token.role)
        self._db.execute(insert(tokens).values(asdict(token)))

    def find(self, token_id: str) -> ApiToken | None:
        row = self._db.execute(_TOKEN, {"its_id": token_id}).one_or_none()
        return None if row is None else ApiToken(**row._asdict())

    def list(self, tenant: str) -> tuple[ApiToken, ...]:
        """By age."""
        query = select(tokens).where(tokens.c.tenant == tenant).order_by(tokens.c.created_at, tokens.c.id)
        return tuple(ApiToken(**row._asdict()) for row in self._db.execute(query))

    def made_by(self, actor: str) -> tuple[ApiToken, ...]:
        query = select(tokens).where(tokens.c.made_by == actor).order_by(tokens.c.created_at, tokens.c.id)
        return tuple(ApiToken(**row._asdict()) for row in self._db.execute(query))

    def used(self, token_id: str, at: float) -> None:
        self._db.execute(update(tokens).where(tokens.c.id == token_id).values(last_used_at=at))

    def revoke(self, token_id: str, at: float) -> None:
        """The first time counts."""
        query = update(tokens).where(tokens.c.id == token_id, tokens.c.revoked_at.is_(None))
        token = self.find(token_id)
        if self._db.execute(query.values(revoked_at=at)).rowcount and token is not None:
            self._events.note("token", token_id, "revoked", tenant=_owner(token.tenant), role=token.role)

    def forget_ended(self, tenant: str, now: float, most: int) -> None:
        """Of those that are revoked or over, all but the newest ones."""
        over = tokens.c.tenant == tenant, or_(tokens.c.revoked_at.is_not(None), tokens.c.expires_at < now)
        made = select(tokens.c.created_at).where(*over).order_by(tokens.c.created_at.desc()).offset(most).limit(1)
        last = self._db.execute(made).scalar_one_or_none()
        if last is not None:
            self._db.execute(delete(tokens).where(*over, tokens.c.created_at <= last))


class Quotas:
    """Limits of tenants and of the pool, and what is held under them."""

    def __init__(self, connection: Statements, usage: TenantUsage, events: Events) -> None:
        self._db = connection
        self._usage = usage
        self._events = events

    def used(self, tenant: str) -> Amounts:
        """What all its VMs and volumes hold. What is not named is not held."""
        return self._usage.used(tenant)

    def drawn(self, *, besides: str) -> Amounts:
        """What the tenants but for this one (``*``: all of them) have taken from the pool, where it has a limit."""
        return self._usage.drawn(besides)

    def list(self) -> tuple[Limit, ...]:
        """By tenant and resource."""
        return tuple(Limit(**row._asdict()) for row in self._db.execute(_LIMITS))

    def put(self, limit: Limit) -> None:
        """Replaces the one there was."""
        self._drop(limit.tenant, limit.resource)
        self._db.execute(insert(quotas).values(asdict(limit)))
        self._note(limit.tenant, limit.resource, "changed")

    def remove(self, tenant: str, resource: str) -> None:
        if self._drop(tenant, resource):
            self._note(tenant, resource, "removed")

    def _drop(self, tenant: str, resource: str) -> int:
        return self._db.execute(delete(quotas).where(quotas.c.tenant == tenant, quotas.c.resource == resource)).rowcount

    def _note(self, tenant: str, resource: str, change: str) -> None:
        self._events.note("quota", tenant, change, tenant=_owner(tenant), resource=resource)


_ISOLATION: Final = policies.c.document["isolation"].as_string()
_ISOLATED: Final = Precompiled(
    select(policies.c.tenant, _ISOLATION.label("isolation")).where(_ISOLATION != DEFAULT_ISOLATION)
)
_LEAVE: Final = policies.c.document["maintenance"].as_string()
_IN_POOL: Final = policies.c.document["pool"].as_string()
_LEAVING: Final = Precompiled(select(policies.c.tenant, _LEAVE.label("leave")).where(_LEAVE != STOP))


class Policies:
    """Tenants' rules for leases and priorities."""

    def __init__(self, connection: Statements, events: Events) -> None:
        self._db = connection
        self._events = events

    def get(self, tenant: str) -> TenantPolicy:
        """The one that says nothing, where none was set."""
        document = self._db.execute(_POLICY, {"its_tenant": tenant}).scalar_one_or_none()
        return TenantPolicy(**(document or {}))

    def isolations(self) -> dict[str, Isolation]:
        """Of the tenants that have another one than the default."""
        return {row.tenant: row.isolation for row in self._db.execute(_ISOLATED) if row.isolation is not None}

    def maintenance(self) -> dict[str, str]:
        """Of the tenants that say another one than the default."""
        return {row.tenant: row.leave for row in self._db.execute(_LEAVING) if row.leave is not None}

    def with_pool(self, pool: str) -> list[str]:
        """Tenants whose new disks lie there, by name."""
        rows = self._db.execute(select(policies.c.tenant).where(pool == _IN_POOL).order_by(policies.c.tenant))
        return [row.tenant for row in rows]

    def put(self, tenant: str, policy: TenantPolicy) -> None:
        """Replaces the one there was. Hosts that VMs of the tenant are on are compared anew with what is wanted."""
        its_hosts = select(vms.c.host).where(vms.c.tenant == tenant)
        self._db.execute(update(observations).where(observations.c.host.in_(its_hosts)).values(judged=None))
        self._db.execute(delete(policies).where(policies.c.tenant == tenant))
        self._db.execute(insert(policies).values(tenant=tenant, document=asdict(policy)))
        self._events.note("policy", tenant, "changed", tenant=tenant)


class RequestKeys:
    """What was asked under idempotency keys."""

    def __init__(self, connection: Statements) -> None:
        self._db = connection

    def find(self, actor: str, key: str) -> StoredRequest | None:
        wanted = select(request_keys).where(request_keys.c.actor == actor, request_keys.c.key == key)
        row = self._db.execute(wanted).one_or_none()
        return None if row is None else StoredRequest(**row._asdict())

    def put(self, request: StoredRequest) -> None:
        """Replaces the one there was."""
        self.remove(request.actor, request.key)
        self._db.execute(insert(request_keys).values(asdict(request)))

    def remove(self, actor: str, key: str) -> None:
        self._db.execute(delete(request_keys).where(request_keys.c.actor == actor, request_keys.c.key == key))

    def forget(self, *, before: float) -> None:
        """All that were begun earlier."""
        self._db.execute(delete(request_keys).where(request_keys.c.at < before))

    def forget_more(self, actor: str, most: int) -> None:
        """All of the actor but the newest ones."""
        its = request_keys.c.actor == actor
        begun = select(request_keys.c.at).where(its).order_by(request_keys.c.at.desc()).offset(most).limit(1)
        last = self._db.execute(begun).scalar_one_or_none()
        if last is not None:
            self._db.execute(delete(request_keys).where(its, request_keys.c.at <= last))
