# SPDX-License-Identifier: Apache-2.0
"""Quotas: set, shown, and checked inside the transaction that claims; how many more VMs one covers."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from orchestrator.catalogue.quota_names import board_name, boards_of, check_is_here, resolved_resource
from orchestrator.core.errors import InvalidInput, NotFound, QuotaExceeded, Reason
from orchestrator.core.hosts.nic import NicKind
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.tenancy.access import EVERYWHERE
from orchestrator.core.tenancy.quota import (
    MAX_LIMIT,
    RESOURCES,
    Amounts,
    Limit,
    QuotaUse,
    amounts_of,
    check_quota,
    check_resource,
    holders_of,
    machine_amounts,
    show_amount,
    vgpu_amounts,
    volume_amounts,
    whole_gpu_amounts,
)
from orchestrator.core.vms.vm import Vm
from orchestrator.core.vms.volume import Volume
from orchestrator.ports.clock import Clock
from orchestrator.services.acting import actor
from orchestrator.services.fleet.known_profiles import KnownProfiles
from orchestrator.services.tenancy.tenants import known_tenant
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction


@dataclass(frozen=True, kw_only=True)
class QuotaRoom:
    """Limits and what is held under them, read once for many questions."""

    tenant: str
    limits: tuple[Limit, ...]
    """Its own and the pool's."""
    used: Amounts
    drawn: Amounts
    """What others have taken from the pool."""
    holders: Mapping[str, Amounts] | None = None
    """What each of the tenant's own things holds, which a refusal then names."""

    @classmethod
    def of(cls, tx: Transaction, tenant: str) -> QuotaRoom:
        """What nothing limits is not counted."""
        limits = tuple(limit for limit in tx.quotas.list() if limit.tenant in {tenant, EVERYWHERE})
        drawn = tx.quotas.drawn(besides=tenant) if any(limit.tenant == EVERYWHERE for limit in limits) else {}
        return cls(tenant=tenant, limits=limits, used=tx.quotas.used(tenant) if limits else {}, drawn=drawn)

    @classmethod
    def told(cls, tx: Transaction, tenant: str, amounts: Amounts) -> QuotaRoom:
        """As :meth:`of`; where ``asked`` is refused, with what holds the rest: only then it is read."""
        room = cls.of(tx, tenant)
        if not room.refuses(amounts):
            return room
        images = (image for image in tx.images.list() if image.tenant == tenant)
        networks = (network for network in tx.networks.list() if network.tenant == tenant)
        volumes, groups = tx.volumes.list(tenant=tenant), tx.security_groups.list(tenant)
        floating = tx.floating_addresses.list(tenant)
        held = holders_of(tx.vms.list(tenant=tenant), volumes, images, networks, groups, floating)
        return replace(room, holders=held)

    def check(self, amounts: Amounts) -> None:
        """:raises QuotaExceeded: ``quota.exceeded``: the tenant may not hold ``asked`` more"""
        check_quota(self.tenant, amounts, self.limits, self.used, self.drawn, self.holders)

    def refuses(self, amounts: Amounts) -> tuple[Reason, ...]:
        """Why the tenant may not hold ``asked`` more; empty: it may."""
        try:
            self.check(amounts)
        except QuotaExceeded as error:
            return error.reasons
        return ()

    def promised(self, amounts: Amounts) -> int:
        """How many times its own limits cover ``asked`` beside what it holds; 0 where none of them is about it."""
        own = {limit.resource: limit.amount for limit in self.limits if limit.tenant == self.tenant}
        free = {name: amount - self.used.get(name, 0) for name, amount in own.items()}
        left = [free[name] // amount for name, amount in amounts.items() if amount and name in free]
        return max(0, min(left, default=0))

    def most(self, amounts: Amounts, at_most: int) -> int:
        """How many times ``asked`` it may hold beside what it holds, ``at_most`` at most."""
        return bisect_left(
            range(1, at_most + 1),
            True,
            key=lambda times: bool(self.refuses({name: amount * times for name, amount in amounts.items()})),
        )


def amounts_asked(
    offering: Offering, *, count: int, vcpus: int, memory_mib: int, disk_bytes: int, nic: NicKind | None = None
) -> Counter[str]:
    """What a VM with ``count`` times the offering would hold."""
    devices: Counter[str] = Counter()
    if offering.vgpu_type is not None:
        one, number = vgpu_amounts(offering.vgpu_type, offering.name), count * offering.vgpu_count
    else:
        board = board_name(offering.gpu_models[0]) if len(offering.gpu_models) == 1 else None
        one, number = whole_gpu_amounts(board), count * max(1, offering.gpu_count)
    for name, amount in one.items():
        devices[name] = amount * number
    if offering.nic is not None or nic is not None:
        devices["nics"] = 1
    return devices + machine_amounts(vcpus, memory_mib, disk_bytes)


def within_quota(tx: Transaction, vm: Vm, stored: Vm | None = None) -> None:
    """Called where the VM is planned, and by a writer that is alone before it stores the VM. A claim beside others is
    held against the limits at its end (``Store.claim``).

    ``stored``: the VM as it is stored already; only what it comes to hold beyond that is asked for.

    :raises QuotaExceeded: ``quota.exceeded``
    """
    more = amounts_of(vm) if stored is None else amounts_of(vm) - amounts_of(stored)
    QuotaRoom.told(tx, vm.spec.tenant, more).check(more)


def more_within_quota(tx: Transaction, tenant: str, amounts: Amounts) -> None:
    """The same of what comes to be held beside VMs: a network, a security group.

    :raises QuotaExceeded: ``quota.exceeded``
    """
    QuotaRoom.told(tx, tenant, amounts).check(amounts)


def new_within_quota(tx: Transaction, vm: Vm) -> None:
    """The same of a new VM, with what comes with it.

    :raises QuotaExceeded: ``quota.exceeded``
    """
    more_within_quota(tx, vm.spec.tenant, amounts_of(vm) + made_with(tx, vm.spec.networks))


def made_with(tx: Transaction, networks: Iterable[str]) -> Counter[str]:
    """What a new VM on these networks brings along: its tenant's default one, where that is not made yet."""
    return Counter(networks=int(any(tx.networks.find(name) is None for name in networks)))


def volume_within_quota(tx: Transaction, volume: Volume) -> None:
    """The same of a data volume, which counts as a disk.

    :raises QuotaExceeded: ``quota.exceeded``
    """
    more_within_quota(tx, volume.tenant, volume_amounts(volume.size_bytes))


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

    def fullest(self) -> dict[str, float]:
        """By resource, how much of a limit is held where that is most, of a tenant or of the pool that all share; 1:
        all of it. Where there is such a pool, a tenant's own limit is not its end and does not count."""
        with self.store.read() as tx:
            drawn = tx.quotas.drawn(besides=EVERYWHERE)
            shared = (limit for limit in tx.quotas.list() if limit.tenant == EVERYWHERE)
            held = [(limit.resource, drawn.get(limit.resource, 0), limit.amount) for limit in shared]
            held += tx.tenant_usage.limited()
        fullest: dict[str, float] = {}
        for resource, used, limit in held:
            share = used / limit if limit else float(used > 0)
            fullest[resource] = max(share, fullest.get(resource, 0.0))
        return fullest

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
