# SPDX-License-Identifier: Apache-2.0
"""Bodies about tenants, members and tokens."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from orchestrator.api.schemas.base import AnswerBody, CopiedAnswer, Moment, Name, RequestBody, moment
from orchestrator.core.tenancy.access import Caller, Role
from orchestrator.core.tenancy.tenant import MAX_TOKEN_LIFETIME_S, Tenant

MAX_SUBJECT = 200


class CreateTenantBody(RequestBody):
    """A tenant: VMs, members and quota of its own."""

    model_config = ConfigDict(title="CreateTenant", json_schema_extra={"examples": [{"name": "research"}]})

    name: Name


class TenantAnswer(AnswerBody):
    name: str
    created_at: Moment
    description: str = Field(description="What people say of it")
    labels: dict[str, str]

    @classmethod
    def of(cls, tenant: Tenant) -> TenantAnswer:
        return cls(
            name=tenant.name,
            created_at=moment(tenant.created_at),
            description=tenant.about.description,
            labels=dict(tenant.about.labels),
        )


class MemberBody(RequestBody):
    """Somebody's role. ``uid:1000`` is a user of the server's machine."""

    model_config = ConfigDict(
        title="PutMember", json_schema_extra={"examples": [{"subject": "uid:1000", "role": "tenant-user"}]}
    )

    subject: str = Field(max_length=MAX_SUBJECT)
    role: Role


class MemberAnswer(CopiedAnswer):
    tenant: str
    subject: str
    role: Role


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


class TokenAnswer(CopiedAnswer):
    """What is known of a token; not the token."""

    id: str
    name: str | None
    tenant: str
    role: Role
    made_by: str
    created_at: Moment
    expires_at: Moment | None
    revoked_at: Moment | None
    last_used_at: Moment | None = Field(description="To the minute; null: never")


class GrantAnswer(CopiedAnswer):
    """One role."""

    tenant: str = Field(description="*: everywhere")
    role: Role


class CallerAnswer(AnswerBody):
    """Whoever asks."""

    actor: str = Field(description="As the audit names them: uid:1000, token:3f2a…, oidc:…")
    grants: tuple[GrantAnswer, ...]
    only_tenant: str | None = Field(description="The one tenant that they have a role in; null: there are others")

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
    about: TokenAnswer
