# SPDX-License-Identifier: Apache-2.0
"""Bodies about tenants, members, tokens, policies and quotas."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from orchestrator.api.schemas.base import MAX_NAME, AboutAnswer, AnswerBody, CopiedAnswer, Moment, Name
from orchestrator.catalogue.described import StrictForm
from orchestrator.core.hosts.volume_key import KeyOrigin, TenantKey
from orchestrator.core.tenancy.access import Caller, Grant, Role
from orchestrator.core.tenancy.quota import MAX_LIMIT, MAX_RESOURCE
from orchestrator.core.tenancy.tenant import MAX_TOKEN_LIFETIME_S, ApiToken, Member, Tenant
from orchestrator.core.vms.lease import MAX_GRACE_S, MAX_LEASE_S, MIN_LEASE_S, TenantPolicy

MAX_SUBJECT = 200


class CreateTenantBody(StrictForm, example={"name": "research"}):
    """A tenant: VMs, members and quota of its own."""

    name: Name
    """What it is called."""


class TenantAnswer(AboutAnswer):
    name: str
    """What it is called."""
    created_at: Moment
    """When it was made."""

    @classmethod
    def of(cls, tenant: Tenant) -> TenantAnswer:
        return cls.copied_about(tenant, tenant.about)


class RotateTenantKeyBody(StrictForm, example={}):
    """A tenant's new key."""

    key: str | None = Field(default=None, max_length=MAX_NAME, repr=False)
    """One that its tenant brings, never shown: 32 bytes in base64; null: the site draws one."""


class TenantKeyAnswer(AnswerBody):
    """A tenant's key, which closes those of its encrypted disks and volumes."""

    copied_from = (TenantKey,)

    tenant: str
    """Whose it is."""
    id: str | None
    """The first 16 hexadecimal digits of its bytes' SHA-256; null: the tenant has none."""
    origin: KeyOrigin | None
    """Who made it; null: the tenant has none."""
    volumes: int

    @classmethod
    def of(cls, tenant: str, key: TenantKey | None) -> TenantKeyAnswer:
        if key is None:
            return cls(tenant=tenant, id=None, origin=None, volumes=0)
        return cls(tenant=tenant, id=key.id, origin=key.origin, volumes=key.volumes)


class TenantKeyRevokedAnswer(AnswerBody):
    """A tenant's key, and those of its encrypted disks and volumes, were destroyed."""

    tenant: str
    """Whose it was."""
    volumes: int
    """How many encrypted disks and volumes it had closed the keys of."""


class PutMemberBody(StrictForm, example={"subject": "uid:1000", "role": "tenant-user"}):
    """Somebody's role. ``uid:1000`` is a user of the server's machine."""

    subject: str = Field(max_length=MAX_SUBJECT)
    """What or whom it is about."""
    role: Role
    """What its holder may do."""


class MemberAnswer(CopiedAnswer, copies=Member):
    """Somebody's role in a tenant, or everywhere."""


class CreateTokenBody(StrictForm, example={"tenant": "research", "role": "tenant-user", "lifetime_s": 86400}):
    """A token for a program. It acts in one tenant (``*``: everywhere) with one role."""

    tenant: str = Field(default="default", max_length=255)
    """Whose it is."""
    role: Role
    """What its holder may do."""
    lifetime_s: int | None = Field(default=None, ge=1, le=MAX_TOKEN_LIFETIME_S)
    """None: until it is revoked."""
    name: Name | None = None
    """What it is for."""


class TokenAnswer(CopiedAnswer, copies=ApiToken, without={"digest"}):
    """What is known of a token; not the token."""

    created_at: Moment
    expires_at: Moment | None
    revoked_at: Moment | None
    last_used_at: Moment | None


class GrantAnswer(CopiedAnswer, copies=Grant):
    """One role."""


class CallerAnswer(AnswerBody):
    """Whoever asks."""

    actor: str
    """As the audit names them: uid:1000, token:3f2a…, oidc:…"""
    grants: tuple[GrantAnswer, ...]
    """Roles, and in which tenants."""
    only_tenant: str | None
    """The one tenant that they have a role in; null: there are others."""

    @classmethod
    def of(cls, caller: Caller) -> CallerAnswer:
        tenants = caller.tenants or ()
        return cls(
            actor=caller.actor,
            grants=tuple(map(GrantAnswer.of, caller.grants)),
            only_tenant=tenants[0] if len(tenants) == 1 else None,
        )


class NewTokenAnswer(AnswerBody):
    """The only answer that holds the token itself."""

    token: str
    """The token itself, which no other answer shows."""
    about: TokenAnswer
    """The token as lists show it."""


class ChangePolicyBody(
    StrictForm, copies=TenantPolicy, defaults=True, example={"default_lease_s": 28800, "max_lease_s": 2592000}
):
    """New values; what is not named stays."""

    default_lease_s: int | None = Field(default=None, ge=MIN_LEASE_S, le=MAX_LEASE_S)
    max_lease_s: int | None = Field(default=None, ge=MIN_LEASE_S, le=MAX_LEASE_S)
    disk_grace_s: int = Field(default=TenantPolicy.disk_grace_s, ge=0, le=MAX_GRACE_S)
    maintenance: str = Field(default=TenantPolicy.maintenance, max_length=40)
    pool: Name | None = None


class PolicyAnswer(CopiedAnswer, copies=TenantPolicy):
    """What holds for all VMs of a tenant."""


_Resource = Annotated[str, Field(min_length=1, max_length=MAX_RESOURCE)]
_Amount = Annotated[int, Field(ge=0, le=MAX_LIMIT)]


class ChangeQuotaBody(StrictForm, example={"limits": {"devices": 2, "framebuffer": 40960}}):
    """New limits by resource; null takes a limit away. Framebuffer, memory and disk in MiB."""

    limits: dict[_Resource, _Amount | None] = Field(min_length=1, max_length=100)
    """By resource; null takes a limit away. Framebuffer, memory and disk in MiB."""
    anyway: bool = False
    """Also limits of GPU models that the site has no GPU of."""


class QuotaLineAnswer(CopiedAnswer):
    resource: str
    """What is limited, like vcpus or vgpus:GRID T4-2Q."""
    limit: int | None
    """null: no limit."""
    used: int
    """How much is taken."""
