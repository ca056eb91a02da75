# SPDX-License-Identifier: Apache-2.0
"""Names of what is there, for lists that found nothing: is there nothing to tell, or no such thing?"""

from __future__ import annotations

from orchestrator.store.transaction import Transaction


def names_of_things(tx: Transaction, tenants: tuple[str, ...] | None) -> list[str]:
    """Names and ids by which operations and audit records call what is there. ``tenants``: only what is theirs;
    None: everything, hosts too."""
    found = [] if tenants is not None else _of_site(tx)
    for tenant in (None,) if tenants is None else tenants:
        found += [name for vm in tx.vms.list(tenant=tenant) for name in (vm.full_name, vm.id)]
        found += [name for volume in tx.volumes.list(tenant=tenant) for name in (volume.full_name, volume.id)]
    return found


def _of_site(tx: Transaction) -> list[str]:
    named = [one.name for one in tx.hosts.list()] + [one.name for one in tx.images.list()]
    return named + [one.name for one in tx.networks.list()] + [one.name for one in tx.tenants.list()]
