# SPDX-License-Identifier: Apache-2.0
"""Bodies about tenants, members and tokens."""

from __future__ import annotations

from datetime import datetime

from pydantic import ConfigDict, Field

from orchestrator.api.schemas.base import AnswerBody, Name, RequestBody, moment, moment_or_none
from orchestrator.core.access import Caller, Role
from orchestrator.core.tenant import MAX_TOKEN_LIFETIME_S, ApiToken, Member, Tenant

MAX_SUBJECT = 200


class CreateTenantBody(RequestBody):
    """A tenant: VMs, members and quota of its own."""

    model_config = ConfigDict(title="CreateTenant", json_schema_extra={"examples": [{"name": "research"}]})

    name: Name


class TenantAnswer(AnswerBody):
    model_config = ConfigDict(title="Tenant")

    name: str
    created_at: datetime

    @classmethod
    def of(cls, tenant: Tenant) -> TenantAnswer:
        return cls(name=tenant.name, created_at=moment(tenant.created_at))


class MemberBody(RequestBody):
    """Somebody's role. ``uid:1000`` is a user of the server's machine."""

    model_config = ConfigDict(
        title="PutMember", json_schema_extra={"examples": [{"subject": "uid:1000", "role": "tenant-user"}]}
    )

    subject: str = Field(max_length=MAX_SUBJECT)
    role: Role


class MemberAnswer(AnswerBody):
    model_config = ConfigDict(title="Member")

    tenant: str
    subject: str
    role: Role

    @classmethod
    def of(cls, member: Member) -> MemberAnswer:
        return cls(tenant=member.tenant, subject=member.subject, role=member.role)


class CreateTokenBody(RequestBody):
    """A token for a program. It acts in one tenant (``*``: everywhere) with one role."""

    model_config = ConfigDict(
        title="CreateToken",
        json_schema_extra={"examples": [{"tenant": "research", "role": "tenant-user", "lifetime_s": 86400}]},
    )

    tenant: str = Field(default="default", max_length=255)
    role: Role
    lifetime_s: int | None = Field(default=None, ge=1, le=MAX_TOKEN_LIFETIME_S, description="None: until it is revoked")
    name: Name | None = Field(default=None, description="What it is for")


class TokenAnswer(AnswerBody):
    """What is known of a token; not the token."""

    model_config = ConfigDict(title="Token")

    id: str
    name: str | None
    tenant: str
    role: Role
    made_by: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None = Field(description="To the minute; null: never")

    @classmethod
    def of(cls, token: ApiToken) -> TokenAnswer:
        return cls(
            id=token.id,
            name=token.name,
            tenant=token.tenant,
            role=token.role,
            made_by=token.made_by,
            created_at=moment(token.created_at),
            expires_at=moment_or_none(token.expires_at),
            revoked_at=moment_or_none(token.revoked_at),
            last_used_at=moment_or_none(token.last_used_at),
        )


class GrantAnswer(AnswerBody):
    """One role."""

    model_config = ConfigDict(title="Grant")

    tenant: str = Field(description="*: everywhere")
    role: Role


class CallerAnswer(AnswerBody):
    """Whoever asks."""

    model_config = ConfigDict(title="Caller")

    actor: str = Field(description="As the audit names them: uid:1000, token:3f2a…, oidc:…")
    grants: tuple[GrantAnswer, ...]
    only_tenant: str | None = Field(description="The one tenant that they have a role in; null: there are others")

    @classmethod
    def of(cls, caller: Caller) -> CallerAnswer:
        tenants = caller.tenants or ()
        return cls(
            actor=caller.actor,
            grants=tuple(GrantAnswer(tenant=grant.tenant, role=grant.role) for grant in caller.grants),
            only_tenant=tenants[0] if len(tenants) == 1 else None,
        )


class NewTokenAnswer(AnswerBody):
    """The only answer that holds the token itself."""

    model_config = ConfigDict(title="NewToken")

    token: str
    about: TokenAnswer
