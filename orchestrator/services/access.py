# SPDX-License-Identifier: Apache-2.0
"""Who somebody is: from the uid that the kernel vouches for, or from a token."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.access import EVERYWHERE, Caller, Grant
from orchestrator.core.errors import Denied
from orchestrator.core.tenant import token_id_of
from orchestrator.ports.clock import Clock
from orchestrator.ports.store import Store

_ADMIN = (Grant(tenant=EVERYWHERE, role="admin"),)


@dataclass(frozen=True, kw_only=True)
class AccessService:
    """Turns proofs of identity into callers."""

    store: Store
    clock: Clock
    owner_uid: int
    """Whom the server runs as. Its owner and root are admins without being members."""

    def of_uid(self, uid: int) -> Caller:
        """A user of this machine.

        :raises Denied: ``peer.denied``: a member of nothing
        """
        actor = f"uid:{uid}"
        if uid in {0, self.owner_uid}:
            return Caller(actor=actor, grants=_ADMIN)
        with self.store.read() as tx:
            found = tx.tenants.members(subject=actor)
        if not found:
            raise Denied(
                "peer.denied",
                "this server does not know you",
                hint="ask its owner to make you a member: 'vgpuctl tenant add-member'",
            )
        return Caller(actor=actor, grants=tuple(Grant(tenant=one.tenant, role=one.role) for one in found))

    def of_token(self, text: str) -> Caller:
        """:raises Denied: ``token.refused``: unknown, expired and revoked ones are told apart by nobody"""
        token_id = token_id_of(text)
        if token_id is not None:
            with self.store.read() as tx:
                token = tx.tokens.find(token_id)
            if token is not None and token.opens(text, self.clock.now()):
                return Caller(actor=f"token:{token.id}", grants=(Grant(tenant=token.tenant, role=token.role),))
        raise Denied("token.refused", "this token is not valid", hint="it may have expired; ask for a new one")
