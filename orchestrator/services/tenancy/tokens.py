# SPDX-License-Identifier: Apache-2.0
"""Tokens: shown once, kept as a digest, for one tenant and role, until they expire or are revoked."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from orchestrator.core.errors import Conflict, InvalidInput, NotFound
from orchestrator.core.names import check_name
from orchestrator.core.tenancy.access import ADMINISTERING, EVERYWHERE, Role
from orchestrator.core.tenancy.tenant import (
    MAX_ENDED_TOKENS,
    MAX_TOKEN_DEPTH,
    MAX_TOKEN_LIFETIME_S,
    MAX_TOKENS_OF_TENANT,
    ApiToken,
    check_role,
    digest_of,
    token_actor,
    token_text,
    with_name,
)
from orchestrator.core.vms.lease import show_span
from orchestrator.ports.clock import Clock
from orchestrator.services.acting import actor
from orchestrator.services.tenancy.tenants import known_tenant
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction

_SECRET_BYTES = 32
_ID_BYTES = 6


@dataclass(frozen=True, kw_only=True)
class TokenService:
    store: Store
    clock: Clock
    max_administering_s: float | None = None
    """The longest life of a token that administers; None: as of any."""

    def create(
        self, tenant: str, role: Role, lifetime_s: float | None, name: str | None = None
    ) -> tuple[ApiToken, str]:
        """The record and the token itself, which nothing can show again. ``lifetime_s`` None: until it is revoked, or
        until the token ends that makes it.

        :raises InvalidInput: ``role.invalid``, ``token.lifetime``, ``token.too_deep``
        :raises NotFound: ``tenant.unknown``; :raises Conflict: ``token.too_many``
        """
        check_role(role, tenant)
        if name is not None:
            check_name(name, what="token")
        if lifetime_s is not None and not 0 < lifetime_s <= MAX_TOKEN_LIFETIME_S:
            raise InvalidInput(
                "token.lifetime",
                "a token lives at most ten years and more than no time",
                hint="for example --lifetime 30d",
            )
        token_id, now = secrets.token_hex(_ID_BYTES), self.clock.now()
        text = token_text(token_id, secrets.token_urlsafe(_SECRET_BYTES))
        token = ApiToken(
            id=token_id,
            digest=digest_of(text),
            tenant=tenant,
            role=role,
            made_by=actor(),
            created_at=now,
            expires_at=None if lifetime_s is None else now + lifetime_s,
            revoked_at=None,
            name=name,
        )
        with self.store.begin() as tx:
            if tenant != EVERYWHERE:
                known_tenant(tx, tenant)
                _check_number(tx, tenant, now)
            tx.tokens.forget_ended(tenant, now, MAX_ENDED_TOKENS)
            token = _ending_with(token, tuple(_above(tx, token)))
            self._check_life(token)
            tx.tokens.add(token)
            subject = with_name(token_id, name)
            tx.audit.append(at=now, actor=actor(), action=f"create_token {role}", subject=subject, outcome="done")
        return token, text

    def _check_life(self, token: ApiToken) -> None:
        limit = self.max_administering_s
        if limit is None or token.role not in ADMINISTERING:
            return
        if token.expires_at is None or token.expires_at > token.created_at + limit:
            raise InvalidInput(
                "token.lifetime",
                f"a token of the role {token.role} lives at most {show_span(int(limit))} here",
                hint=f"--lifetime {show_span(int(limit))}, or less",
            )

    def list(self, tenant: str) -> tuple[ApiToken, ...]:
        """By age, revoked ones too. :raises NotFound: ``tenant.unknown``"""
        with self.store.read() as tx:
            if tenant != EVERYWHERE:
                known_tenant(tx, tenant)
            return tx.tokens.list(tenant)

    def revoke(self, tenant: str, token_id: str) -> None:
        """At once and for good, with those that it made. :raises NotFound: ``token.unknown``"""
        now = self.clock.now()
        with self.store.begin() as tx:
            token = tx.tokens.find(token_id)
            if token is None or token.tenant != tenant:
                raise NotFound(
                    "token.unknown", f"no token has the id {token_id[:20]!a}", hint="'vgpuctl token list' shows them"
                )
            ending = [token]
            for ended in ending:
                ending.extend(tx.tokens.made_by(token_actor(ended.id)))
                if ended.revoked_at is None:
                    tx.tokens.revoke(ended.id, now)
                    subject = with_name(ended.id, ended.name)
                    tx.audit.append(at=now, actor=actor(), action="revoke_token", subject=subject, outcome="done")


def line_is_good(tx: Transaction, token: ApiToken, now: float) -> bool:
    """Are all that stand above it? One that is no more is not."""
    return all(ancestor is not None and ancestor.is_good(now) for ancestor in _above(tx, token))


def _above(tx: Transaction, token: ApiToken) -> Iterator[ApiToken | None]:
    """The token that made it, the one that made that, and so on. None: it is no more."""
    parent = token.parent
    while parent is not None:
        parent_token = tx.tokens.find(parent)
        yield parent_token
        parent = None if parent_token is None else parent_token.parent


def _ending_with(token: ApiToken, line: Sequence[ApiToken | None]) -> ApiToken:
    """Not later than any of those above it.

    :raises InvalidInput: ``token.lifetime``, ``token.too_deep``
    """
    if len(line) > MAX_TOKEN_DEPTH:
        raise InvalidInput(
            "token.too_deep",
            f"{MAX_TOKEN_DEPTH} tokens stand above the one that asks: it makes none",
            hint="let a token further up make it, or a member",
        )
    end = min(
        (ancestor.expires_at for ancestor in line if ancestor is not None and ancestor.expires_at is not None),
        default=None,
    )
    if end is None:
        return token
    if token.expires_at is not None and token.expires_at > end:
        raise InvalidInput(
            "token.lifetime",
            "a token ends with the one that makes it, at the latest",
            hint="without a lifetime it ends just then",
        )
    return replace(token, expires_at=token.expires_at or end)


def _check_number(tx: Transaction, tenant: str, now: float) -> None:
    """Tokens that are over do not count."""
    live = sum(token.revoked_at is None and (token.expires_at or now) >= now for token in tx.tokens.list(tenant))
    if live >= MAX_TOKENS_OF_TENANT:
        raise Conflict(
            "token.too_many",
            f"tenant {tenant} has {live} tokens, and no tenant has more",
            hint=f"'vgpuctl token list --tenant {tenant}' shows them; revoke those that nobody uses",
        )
