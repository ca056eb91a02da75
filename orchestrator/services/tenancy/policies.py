# SPDX-License-Identifier: Apache-2.0
"""Policies of tenants: shown and changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from orchestrator.core.errors import Denied
from orchestrator.core.vms.lease import PolicyValue, TenantPolicy, changed_policy
from orchestrator.ports.clock import Clock
from orchestrator.services.acting import actor
from orchestrator.services.tenancy.tenants import known_tenant
from orchestrator.store.database import Store

THEIR_OWN: Final = frozenset({"driver_upgrade"})
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

        :raises InvalidInput: ``policy.invalid``; :raises NotFound: ``tenant.unknown``
        :raises Denied: ``policy.not_yours``
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
            if policy == before:
                return policy
            tx.policies.put(tenant, policy)
            action = "set_policy " + ", ".join(f"{name}={value}" for name, value in sorted(values.items()))
            tx.audit.append(at=self.clock.now(), actor=actor(), action=action, subject=tenant, outcome="done")
        return policy


def _named(members: Iterable[str]) -> str:
    """As they are typed: max-lease of max_lease_s."""
    return ", ".join(sorted(name.removeprefix("default_").removesuffix("_s").replace("_", "-") for name in members))
