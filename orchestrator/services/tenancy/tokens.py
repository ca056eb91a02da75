# SPDX-License-Identifier: Apache-2.0
"""Tokens: shown once, kept as a digest, for one tenant and role, until they expire or are revoked."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from orchestrator.core.access import EVERYWHERE, Role
from orchestrator.core.errors import InvalidInput, NotFound
from orchestrator.core.names import check_name
from orchestrator.core.tenant import MAX_TOKEN_LIFETIME_S, ApiToken, check_role, digest_of, token_text
from orchestrator.ports.clock import Clock
from orchestrator.ports.store.transaction import Store
from orchestrator.services.acting import actor
from orchestrator.services.tenancy.tenants import known_tenant

_SECRET_BYTES = 32
_ID_BYTES = 6


@dataclass(frozen=True, kw_only=True)
class TokenService:
    store: Store
    clock: Clock

    def create(
        self, tenant: str, role: Role, lifetime_s: float | None, name: str | None = None
    ) -> tuple[ApiToken, str]:
        """The record and the token itself, which nothing can show again. ``lifetime_s`` None: until it is revoked.

        :raises InvalidInput: ``role.invalid``, ``token.lifetime``; :raises NotFound: ``tenant.unknown``
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
            tx.tokens.add(token)
            tx.audit.append(at=now, actor=actor(), action=f"create_token {role}", subject=token_id, outcome="done")
        return token, text

    def list(self, tenant: str) -> tuple[ApiToken, ...]:
        """By age, revoked ones too."""
        with self.store.read() as tx:
            return tx.tokens.list(tenant)

    def revoke(self, tenant: str, token_id: str) -> None:
        """At once and for good. :raises NotFound: ``token.unknown``"""
        now = self.clock.now()
        with self.store.begin() as tx:
            token = tx.tokens.find(token_id)
            if token is None or token.tenant != tenant:
                raise NotFound(
                    "token.unknown", f"no token has the id {token_id[:20]!a}", hint="'vgpuctl token list' shows them"
                )
            tx.tokens.revoke(token_id, now)
            tx.audit.append(at=now, actor=actor(), action="revoke_token", subject=token_id, outcome="done")
