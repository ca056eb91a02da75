# SPDX-License-Identifier: Apache-2.0
"""How many more VMs a tenant's quota covers."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from orchestrator.catalogue.quota_names import board_name
from orchestrator.core.errors import QuotaExceeded, Reason
from orchestrator.core.hosts.nic import NicKind
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.tenancy.access import EVERYWHERE
from orchestrator.core.tenancy.quota import (
    Amounts,
    Limit,
    check_quota,
    holders_of,
    machine_amounts,
    vgpu_amounts,
    whole_gpu_amounts,
)
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
        held = holders_of(tx.vms.list(tenant=tenant), tx.volumes.list(tenant=tenant), images)
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
