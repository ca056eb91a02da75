# SPDX-License-Identifier: Apache-2.0
"""Everything about who may do what, for bootstrap to make and the API to take as one: who somebody is, from the uid
that the kernel vouches for or from a token, and the policies of tenants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

from orchestrator.core.errors import Denied
from orchestrator.core.tenancy.access import ADMINISTERING, EVERYWHERE, Caller, Grant
from orchestrator.core.tenancy.audit import audit_key
from orchestrator.core.tenancy.key_ring import origin_of
from orchestrator.core.tenancy.tenant import ApiToken, subject_spellings, token_actor, token_id_of
from orchestrator.core.vms.lease import PolicyValue, TenantPolicy, changed_policy
from orchestrator.ports.clock import Clock
from orchestrator.ports.files import NotedHead
from orchestrator.ports.identity import Identities
from orchestrator.services.acting import actor
from orchestrator.services.audit import AuditService
from orchestrator.services.change_allowance import ChangeAllowance
from orchestrator.services.pools import check_may_be_usual
from orchestrator.services.request_keys import RequestKeyService
from orchestrator.services.tenancy.quotas import QuotaService
from orchestrator.services.tenancy.tenants import TenantService, known_tenant
from orchestrator.services.tenancy.tokens import TokenService, line_is_good
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


THEIR_OWN: Final = frozenset({"maintenance"})
"""What a tenant's own admin may change."""


@dataclass(frozen=True, kw_only=True)
class PolicyService:
    store: Store
    clock: Clock

    def get(self, tenant: str) -> TenantPolicy:
        """:raises NotFound: ``tenant.unknown``"""
        with self.store.read() as tx:
            known_tenant(tx, tenant)
            return tx.policies.get(tenant)

    def change(self, tenant: str, values: Mapping[str, PolicyValue], *, operator: bool = True) -> TenantPolicy:
        """Set these; others stay. VMs that are there keep their ends and priorities. ``operator``: whoever asks is one,
        and not the tenant's own admin.

        :raises InvalidInput: ``policy.invalid``; :raises NotFound: ``tenant.unknown``, ``pool.unknown``
        :raises Denied: ``policy.not_yours``; :raises Conflict: ``pool.busy``
        """
        others = values.keys() - THEIR_OWN
        if others and not operator:
            raise Denied(
                "policy.not_yours",
                f"an operator says {_named(others)} of a tenant",
                hint=f"its admin says {_named(THEIR_OWN)}",
            )
        with self.store.begin() as tx:
            known_tenant(tx, tenant)
            before = tx.policies.get(tenant)
            policy = changed_policy(before, values)
            if policy.pool != before.pool and policy.pool is not None:
                check_may_be_usual(tx, policy.pool)
            if policy == before:
                return policy
            tx.policies.put(tenant, policy)
            action = "set_policy " + ", ".join(f"{name}={value}" for name, value in sorted(values.items()))
            tx.audit.append(at=self.clock.now(), actor=actor(), action=action, subject=tenant, outcome="done")
        return policy


def _named(members: Iterable[str]) -> str:
    """As they are typed: max-lease of max_lease_s."""
    return ", ".join(sorted(name.removeprefix("default_").removesuffix("_s").replace("_", "-") for name in members))


@dataclass(frozen=True, kw_only=True)
class Tenancy:
    access: AccessService
    tenants: TenantService
    tokens: TokenService
    quotas: QuotaService
    policies: PolicyService
    audit: AuditService
    request_keys: RequestKeyService
    allowance: ChangeAllowance = field(default_factory=ChangeAllowance)


def tenancy(
    store: Store,
    clock: Clock,
    *,
    owner_uid: int,
    key: bytes,
    identities: Identities | None = None,
    noted: NotedHead | None = None,
) -> Tenancy:
    """``owner_uid``: whom the server runs as. ``key``: the ring of core/tenancy/key_ring.py.

    ``identities``: who reads the tokens of those who log in; None: nobody can.
    ``noted``: where the audit's head is written down.
    """
    made = Tenancy(
        access=AccessService(store=store, clock=clock, owner_uid=owner_uid, identities=identities),
        tenants=TenantService(store=store, clock=clock),
        tokens=TokenService(store=store, clock=clock),
        quotas=QuotaService(store=store, clock=clock),
        policies=PolicyService(store=store, clock=clock),
        audit=AuditService(store=store, clock=clock, key=audit_key(key), noted=noted),
        request_keys=RequestKeyService(store=store, clock=clock, secret=origin_of(key)),
    )
    made.tenants.ensure_default()
    return made
