# SPDX-License-Identifier: Apache-2.0
"""Quotas: set, shown, and checked inside the transaction that claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.catalogue.quota_names import boards_of, check_is_here, resolved_resource
from orchestrator.core.errors import InvalidInput, NotFound
from orchestrator.core.tenancy.access import EVERYWHERE
from orchestrator.core.tenancy.quota import (
    MAX_LIMIT,
    RESOURCES,
    Limit,
    QuotaUse,
    amounts_of,
    check_resource,
    show_amount,
    volume_amounts,
)
from orchestrator.core.vms.vm import Vm
from orchestrator.core.vms.volume import Volume
from orchestrator.ports.clock import Clock
from orchestrator.services.acting import actor
from orchestrator.services.fleet.known_profiles import KnownProfiles
from orchestrator.services.tenancy.quota_room import QuotaRoom
from orchestrator.services.tenancy.tenants import known_tenant
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction


def within_quota(tx: Transaction, vm: Vm, stored: Vm | None = None) -> None:
    """Called where the VM is planned, and by a writer that is alone before it stores the VM. A claim beside others is
    held against the limits at its end (``Store.claim``).

    ``stored``: the VM as it is stored already; only what it comes to hold beyond that is asked for.

    :raises QuotaExceeded: ``quota.exceeded``
    """
    more = amounts_of(vm) if stored is None else amounts_of(vm) - amounts_of(stored)
    QuotaRoom.told(tx, vm.spec.tenant, more).check(more)


def volume_within_quota(tx: Transaction, volume: Volume) -> None:
    """The same of a data volume, which counts as a disk.

    :raises QuotaExceeded: ``quota.exceeded``
    """
    amounts = volume_amounts(volume.size_bytes)
    QuotaRoom.told(tx, volume.tenant, amounts).check(amounts)


def _resolved(tx: Transaction, limits: Mapping[str, int | None], *, anyway: bool) -> dict[str, int | None]:
    """By what their keys mean. A limit that is taken away may be one that was stored before keys were looked up."""
    if all(":" not in name for name in limits):
        return dict(limits)
    known = KnownProfiles.of(tx)
    amounts: dict[str, int | None] = {name: None for name, amount in limits.items() if amount is None}
    for name, amount in limits.items():
        try:
            amounts[resolved_resource(name, known.profiles, host_types=known.types)] = amount
        except NotFound:
            if amount is not None:
                raise
    if not anyway:
        boards = _boards(tx)
        for name in (name for name, amount in amounts.items() if amount is not None):
            check_is_here(name, boards)
    return amounts


def _boards(tx: Transaction) -> Counter[str]:
    """How many GPUs of each model the hosts have, by its name in vGPU types: ``H100XM``."""
    facts = (host.facts for host in tx.fleet.hosts(None) if host.facts is not None)
    return Counter(board for fact in facts for gpu in fact.gpus for board in boards_of(gpu.model, gpu.types))


@dataclass(frozen=True, kw_only=True)
class QuotaService:
    store: Store
    clock: Clock

    def get(self, tenant: str) -> tuple[QuotaUse, ...]:
        """Every resource with a limit or in use. ``*``: the shared pool, and how much of it is taken.

        :raises NotFound: ``tenant.unknown``
        """
        with self.store.read() as tx:
            limits = _limits(tx, tenant)
            if tenant == EVERYWHERE:
                used, names = tx.quotas.drawn(besides=EVERYWHERE), sorted(limits)
            else:
                known_tenant(tx, tenant)
                used = tx.quotas.used(tenant)
                names = [*RESOURCES, *sorted(limits.keys() - set(RESOURCES))]
        return tuple(QuotaUse(resource=name, limit=limits.get(name), used=used.get(name, 0)) for name in names)

    def change(self, tenant: str, limits: Mapping[str, int | None], *, anyway: bool = False) -> tuple[QuotaUse, ...]:
        """Set these limits, or with None take them away; others stay. What is held already stays held. ``anyway``: also
        of models that the site has no GPU of.

        :raises InvalidInput: ``quota.resource_unknown``, ``quota.invalid``
        :raises NotFound: ``tenant.unknown``, ``quota.name_unknown``, ``quota.none_here``
        """
        for resource, amount in limits.items():
            check_resource(resource)
            if amount is not None and not 0 <= amount <= MAX_LIMIT:
                raise InvalidInput("quota.invalid", f"the quota of {resource} cannot be {amount}", hint="0 or more")
        with self.store.read() as tx:
            meant = _resolved(tx, limits, anyway=anyway)
        with self.store.begin() as tx:
            if tenant != EVERYWHERE:
                known_tenant(tx, tenant)
            before = _limits(tx, tenant)
            new = {name: amount for name, amount in meant.items() if amount != before.get(name)}
            for resource, amount in new.items():
                if amount is None:
                    tx.quotas.remove(tenant, resource)
                else:
                    tx.quotas.put(Limit(tenant=tenant, resource=resource, amount=amount))
            changed = ", ".join(f"{name}={_amount(name, amount)}" for name, amount in sorted(new.items()))
            if new:
                tx.audit.append(
                    at=self.clock.now(), actor=actor(), action=f"set_quota {changed}", subject=tenant, outcome="done"
                )
        return self.get(tenant)


def _limits(tx: Transaction, tenant: str) -> dict[str, int]:
    return {limit.resource: limit.amount for limit in tx.quotas.list() if limit.tenant == tenant}


def _amount(name: str, amount: int | None) -> str:
    return "none" if amount is None else show_amount(name, amount)
