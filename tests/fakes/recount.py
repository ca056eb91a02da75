# SPDX-License-Identifier: Apache-2.0
"""What tenants hold, counted anew from their VMs, volumes and images."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.core.tenancy.quota import totals_of
from orchestrator.store.transaction import Transaction


def miscounted(tx: Transaction) -> Iterator[str]:
    """Every tenant whose counters say something else."""
    totals = totals_of(
        tx.vms.list(),
        tx.volumes.list(),
        tx.images.list(),
        tx.networks.list(),
        tx.security_groups.list(),
        tx.floating_addresses.list(),
    )
    for tenant in sorted(totals.keys() | {one.name for one in tx.tenants.list()}):
        held = {name: amount for name, amount in totals.get(tenant, {}).items() if amount}
        counted = {name: amount for name, amount in tx.quotas.used(tenant).items() if amount}
        if held != counted:
            yield f"tenant {tenant} holds {held}, its counters say {counted}"
