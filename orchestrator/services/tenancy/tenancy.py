# SPDX-License-Identifier: Apache-2.0
"""Everything about who may do what, for bootstrap to make and the API to take as one."""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.core.tenancy.audit import audit_key
from orchestrator.core.tenancy.key_ring import origin_of
from orchestrator.ports.clock import Clock
from orchestrator.ports.files import NotedHead
from orchestrator.ports.identity import Identities
from orchestrator.services.audit import AuditService
from orchestrator.services.change_allowance import ChangeAllowance
from orchestrator.services.request_keys import RequestKeyService
from orchestrator.services.tenancy.access import AccessService
from orchestrator.services.tenancy.policies import PolicyService
from orchestrator.services.tenancy.quotas import QuotaService
from orchestrator.services.tenancy.tenants import TenantService
from orchestrator.services.tenancy.tokens import TokenService
from orchestrator.store.database import Store


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
