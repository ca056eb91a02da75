# SPDX-License-Identifier: Apache-2.0
"""Who somebody is: from the uid that the kernel vouches for, or from a token."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass

from orchestrator.core.errors import Denied
from orchestrator.core.tenancy.access import ADMINISTERING, EVERYWHERE, Caller, Grant
from orchestrator.core.tenancy.tenant import ApiToken, subject_spellings, token_actor, token_id_of
from orchestrator.ports.clock import Clock
from orchestrator.ports.identity import Identities
from orchestrator.services.tenancy.tokens import line_is_good
from orchestrator.store.database import Store

_USE_STEP_S = 60.0
_ADMIN = (Grant(tenant=EVERYWHERE, role="admin"),)


@dataclass(frozen=True, kw_only=True)
class AccessService:
    """Turns proofs of identity into callers."""

    store: Store
    clock: Clock
    owner_uid: int
    """Whom the server runs as. Its owner and root are admins without being members."""
    identities: Identities | None = None
    """None: nobody logs in, tokens are ours."""

    def of_owner(self, uid: int) -> Caller | None:
        """Root and whom the server runs as, known without the database; None: another user."""
        return Caller(actor=f"uid:{uid}", grants=_ADMIN) if uid in {0, self.owner_uid} else None

    def of_uid(self, uid: int) -> Caller:
        """A user of this machine.

        :raises Denied: ``peer.denied``: a member of nothing
        """
        return self.of_owner(uid) or self._member((f"uid:{uid}",))

    def awaited(self, text: str) -> Future[None] | None:
        """What there is to wait for before :meth:`of_token` can say who it is: an identity provider."""
        return None if self.identities is None or token_id_of(text) is not None else self.identities.awaited(text)

    def of_token(self, text: str) -> Caller:
        """One of ours, or one that shows a login.

        :raises Denied: ``token.refused``: ours that are unknown, expired or revoked are told apart by nobody;
            ``peer.denied``: who logged in is a member of nothing; ``login.too_weak``: administers, and the login does
            not show what the site asks for
        :raises Retryable: ``login.unreachable``
        """
        token_id = token_id_of(text)
        if token_id is None and self.identities is not None:
            login = self.identities.login(text)
            caller = self._member(login.names)
            if login.too_weak is not None and any(grant.role in ADMINISTERING for grant in caller.grants):
                raise login.too_weak
            return caller
        if token_id is not None:
            now = self.clock.now()
            with self.store.read() as tx:
                token = tx.tokens.find(token_id)
                opens = token is not None and token.opens(text, now) and line_is_good(tx, token, now)
            if token is not None and opens:
                self._note_use(token, now)
                return Caller(actor=token_actor(token.id), grants=(Grant(tenant=token.tenant, role=token.role),))
        raise Denied("token.refused", "this token is not valid", hint="it may have expired; ask for a new one")

    def _note_use(self, token: ApiToken, now: float) -> None:
        """To the minute: a write for every request would cost more than the request."""
        if token.last_used_at is None or now - token.last_used_at >= _USE_STEP_S:
            with self.store.begin() as tx:
                tx.tokens.used(token.id, now)

    def _member(self, names: tuple[str, ...]) -> Caller:
        """Who has these names has the roles of them all; the first one is the actor."""
        with self.store.read() as tx:
            written = [spelling for name in names for spelling in subject_spellings(name)]
            members = [member for name in written for member in tx.tenants.members(subject=name)]
        if not members:
            raise Denied(
                "peer.denied",
                "this server does not know you",
                hint=f"ask its owner to make you a member: 'vgpuctl tenant add-member TENANT {names[0]}'",
            )
        return Caller(actor=names[0], grants=tuple(Grant(tenant=member.tenant, role=member.role) for member in members))
