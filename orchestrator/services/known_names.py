# SPDX-License-Identifier: Apache-2.0
"""Names of what is there, for lists that found nothing: is there nothing to tell, or no such thing?"""

from __future__ import annotations

from orchestrator.store.transaction import Transaction


def names_of_things(tx: Transaction, tenants: tuple[str, ...] | None) -> list[str]:
    """Names and ids by which operations and audit records call what is there. ``tenants``: only what is theirs;
    None: everything, hosts too."""
    names = [] if tenants is not None else _of_site(tx)
    for tenant in (None,) if tenants is None else tenants:
        names += [name for vm in tx.vms.list(tenant=tenant) for name in (vm.full_name, vm.id)]
        names += [name for volume in tx.volumes.list(tenant=tenant) for name in (volume.full_name, volume.id)]
    return names


def _of_site(tx: Transaction) -> list[str]:
    named = [thing.name for thing in tx.hosts.list()] + [thing.name for thing in tx.images.list()]
    return named + [thing.name for thing in tx.networks.list()] + [thing.name for thing in tx.tenants.list()]
