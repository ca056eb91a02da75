# SPDX-License-Identifier: Apache-2.0
"""Bodies about tenants, members and tokens."""

from __future__ import annotations

from datetime import datetime

from pydantic import ConfigDict, Field

from orchestrator.api.schemas.base import AnswerBody, Name, RequestBody, moment, moment_or_none
from orchestrator.core.access import Role
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


class TokenAnswer(AnswerBody):
    """What is known of a token; not the token."""

    model_config = ConfigDict(title="Token")

    id: str
    tenant: str
    role: Role
    made_by: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None

    @classmethod
    def of(cls, token: ApiToken) -> TokenAnswer:
        return cls(
            id=token.id,
            tenant=token.tenant,
            role=token.role,
            made_by=token.made_by,
            created_at=moment(token.created_at),
            expires_at=moment_or_none(token.expires_at),
            revoked_at=moment_or_none(token.revoked_at),
        )


class NewTokenAnswer(AnswerBody):
    """The only answer that holds the token itself."""

    model_config = ConfigDict(title="NewToken")

    token: str
    about: TokenAnswer
