# SPDX-License-Identifier: Apache-2.0
"""Tenants, their members, and tokens that act for them. Times are seconds since the epoch, UTC."""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass

from orchestrator.core.access import EVERYWHERE, ROLES_EVERYWHERE, ROLES_IN_A_TENANT, Role
from orchestrator.core.errors import InvalidInput

DEFAULT_TENANT = "default"
"""Is always there: with it, one person needs to know nothing of tenants."""

TOKEN_PREFIX = "vgpuctl_"  # noqa: S105 (the part that is no secret)
"""Fixed, so that scanners of published text can find tokens."""
MAX_TOKEN_LIFETIME_S = 10 * 366 * 86400
_TOKEN = re.compile(rf"{TOKEN_PREFIX}(?P<id>[0-9a-f]{{12}})_(?P<secret>[A-Za-z0-9_-]{{43}})", re.ASCII)
_SUBJECT = re.compile(r"uid:(0|[1-9][0-9]{0,9})|oidc:[!-~]{1,190}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Tenant:
    name: str
    created_at: float


@dataclass(frozen=True, kw_only=True)
class Member:
    """Somebody's role in a tenant, or everywhere."""

    tenant: str
    subject: str
    """``uid:1000``: a user of the server's machine; ``oidc:<subject>``, ``oidc:<address>``, ``oidc:@<group>``: who
    logs in."""
    role: Role


@dataclass(frozen=True, kw_only=True)
class ApiToken:
    """What is kept of a token: never the token itself."""

    id: str
    digest: str
    """SHA-256 of the whole token, in hexadecimal. It holds 256 random bits, so a slow hash would add nothing."""
    tenant: str
    role: Role
    made_by: str
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    name: str | None = None
    """What it is for, as whoever made it says."""
    last_used_at: float | None = None
    """To the minute."""

    def opens(self, text: str, now: float) -> bool:
        """Is ``text`` this token, and is it good now? Takes the same time wherever it differs."""
        same = hmac.compare_digest(self.digest, digest_of(text))
        return same and self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


def token_text(token_id: str, secret: str) -> str:
    """What its owner gets to see, once."""
    return f"{TOKEN_PREFIX}{token_id}_{secret}"


def token_id_of(text: str) -> str | None:
    """None: this is no token of ours."""
    found = _TOKEN.fullmatch(text)
    return None if found is None else found["id"]


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def check_subject(text: str) -> str:
    """:raises InvalidInput: ``member.subject_invalid``"""
    if _SUBJECT.fullmatch(text) is None:
        raise InvalidInput(
            "member.subject_invalid",
            f"{text[:60]!a} names nobody",
            hint="write uid:1000 for a user of the server's machine, oidc:<name> or oidc:@<group> for who logs in",
        )
    return text


def check_role(role: Role, tenant: str) -> Role:
    """:raises InvalidInput: ``role.invalid``: admins and operators are so everywhere, tenant roles in one tenant"""
    allowed = ROLES_EVERYWHERE if tenant == EVERYWHERE else ROLES_IN_A_TENANT
    if role not in allowed:
        where = "everywhere" if tenant == EVERYWHERE else "in one tenant"
        raise InvalidInput("role.invalid", f"nobody can be {role!a} {where}", hint=f"{where}: {', '.join(allowed)}")
    return role
