# SPDX-License-Identifier: Apache-2.0
"""Tenants, their members, and tokens that act for them. Times are seconds since the epoch, UTC."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.core.errors import InvalidInput
from orchestrator.core.labels import NOTHING_SAID, About
from orchestrator.core.tenancy.access import EVERYWHERE, ROLES_EVERYWHERE, ROLES_IN_A_TENANT, Role

DEFAULT_TENANT = "default"
"""Is always there: with it, one person needs to know nothing of tenants."""

TOKEN_PREFIX = "vgpuctl_"  # noqa: S105 (the part that is no secret)
"""Fixed, so that scanners of published text can find tokens."""
MAX_TOKENS_OF_TENANT = 256
"""That are good at the same time."""
MAX_ENDED_TOKENS = 256
"""Of one tenant, revoked or over, that are still shown; the audit keeps the names of all."""
MAX_MEMBERS = 1000
"""Of one tenant."""
MAX_TOKEN_LIFETIME_S = 10 * 366 * 86400
_TOKEN = re.compile(rf"{TOKEN_PREFIX}(?P<id>[0-9a-f]{{12}})_(?P<secret>[A-Za-z0-9_-]{{43}})", re.ASCII)
MAX_TOKEN_DEPTH = 4
"""How many tokens may stand above one: each is read when it is used."""
_BY_TOKEN = "token:"  # noqa: S105 (an actor, no secret)
_OIDC, _OIDC_SUBJECT = "oidc:", "oidc:sub:"
_SUBJECT = re.compile(r"uid:(0|[1-9][0-9]{0,9})|oidc:(?!sub:$)[!-~]{1,190}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Tenant:
    name: str
    created_at: float
    about: About = NOTHING_SAID


@dataclass(frozen=True, kw_only=True)
class Member:
    """Somebody's role in a tenant, or everywhere."""

    tenant: str
    """Whose it is."""
    subject: str
    """``uid:1000``: a user of the server's machine; ``oidc:sub:<subject>``, ``oidc:<address>``, ``oidc:@<group>``: who
    logs in."""
    role: Role
    """What its holder may do."""


@dataclass(frozen=True, kw_only=True)
class ApiToken:
    """What is kept of a token: never the token itself."""

    id: str
    """Stays the same for ever."""
    digest: str
    """SHA-256 of the whole token, in hexadecimal. It holds 256 random bits, so a slow hash would add nothing."""
    tenant: str
    """Whose it is."""
    role: Role
    """What its holder may do."""
    made_by: str
    """Who made it."""
    created_at: float
    """When it was made."""
    expires_at: float | None
    """After which it is refused; None: never."""
    revoked_at: float | None
    """When it was taken back; None: it was not."""
    name: str | None = None
    """What it is for, as whoever made it says."""
    last_used_at: float | None = None
    """To the minute."""

    @property
    def parent(self) -> str | None:
        """Id of the token that made this one, with which it ends; None: somebody else did."""
        return token_of_actor(self.made_by)

    def is_good(self, now: float) -> bool:
        """By what it says itself; :attr:`parent` may have ended."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def opens(self, text: str, now: float) -> bool:
        """Is ``text`` this token, and is it good now? Takes the same time wherever it differs."""
        same = hmac.compare_digest(self.digest, digest_of(text))
        return same and self.is_good(now)


def token_actor(token_id: str) -> str:
    """As the audit and :attr:`ApiToken.made_by` name it."""
    return f"{_BY_TOKEN}{token_id}"


def token_of_actor(actor: str) -> str | None:
    """The inverse of :func:`token_actor`; None: no token acts."""
    return actor.removeprefix(_BY_TOKEN) if actor.startswith(_BY_TOKEN) else None


def with_name(identity: str, name: str | None) -> str:
    """As the audit keeps it, for as long as it keeps anything: ``3f2a… (ci)``. Names hold no space."""
    return identity if name is None else f"{identity} ({name})"


def token_text(token_id: str, secret: str) -> str:
    """What its owner gets to see, once."""
    return f"{TOKEN_PREFIX}{token_id}_{secret}"


def token_id_of(text: str) -> str | None:
    """None: this is no token of ours."""
    match = _TOKEN.fullmatch(text)
    return None if match is None else match["id"]


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def subject_spelling(text: str) -> str:
    """The one way to write who it is. Subjects, addresses and groups of logins never meet, whatever a provider lets
    people call themselves: a group begins with ``@``, an address has one further on, and a subject stands behind
    ``sub:``. Where neither is said it was a subject before there were these names."""
    rest = text.removeprefix(_OIDC)
    return text if rest == text or "@" in rest or text.startswith(_OIDC_SUBJECT) else f"{_OIDC_SUBJECT}{rest}"


def subject_spellings(text: str) -> tuple[str, ...]:
    """How the same one may be stored: as :func:`subject_spelling` has it, and as it was written before."""
    now = subject_spelling(text)
    before = f"{_OIDC}{now.removeprefix(_OIDC_SUBJECT)}"
    return (now, before) if before != now and subject_spelling(before) == now else (now,)


def login_names(subject: str, address: str | None, groups: Iterable[str]) -> tuple[str, ...]:
    """The subject first. ``address``: one that the provider has verified; one that could be read as another kind of
    name is left out."""
    names = [f"{_OIDC_SUBJECT}{subject}"]
    if address is not None and "@" in address[1:] and not f"{_OIDC}{address}".startswith((_OIDC_SUBJECT, f"{_OIDC}@")):
        names.append(f"{_OIDC}{address}")
    return (*names, *(f"{_OIDC}@{group}" for group in groups))


def check_subject(text: str) -> str:
    """As :func:`subject_spelling` writes it. :raises InvalidInput: ``member.subject_invalid``"""
    if _SUBJECT.fullmatch(text) is None:
        raise InvalidInput(
            "member.subject_invalid",
            f"{text[:60]!a} names nobody",
            hint="uid:1000 is a user of the server's machine; oidc:ADDRESS, oidc:@GROUP, oidc:sub:ID log in",
        )
    return subject_spelling(text)


def check_role(role: Role, tenant: str) -> Role:
    """:raises InvalidInput: ``role.invalid``: admins and operators are so everywhere, tenant roles in one tenant"""
    allowed = ROLES_EVERYWHERE if tenant == EVERYWHERE else ROLES_IN_A_TENANT
    if role not in allowed:
        where = "everywhere" if tenant == EVERYWHERE else "in one tenant"
        also = " (--tenant '*' is everywhere)" if role in ROLES_EVERYWHERE else ""
        hint = f"{where}: {', '.join(allowed)}{also}"
        raise InvalidInput("role.invalid", f"nobody can be {role!a} {where}", hint=hint)
    return role
