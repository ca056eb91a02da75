# SPDX-License-Identifier: Apache-2.0
"""Room for data volumes and their snapshots: what is claimed of a host, a pool and a tenant's quota."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.core.errors import Conflict, InvalidInput, NoCapacity, Reason
from orchestrator.core.hosts.domain import DiskLimits
from orchestrator.core.units import show_size
from orchestrator.core.vms.claim import HostCapacity
from orchestrator.core.vms.vm import MAX_DISK_BYTES, MIN_DISK_BYTES
from orchestrator.core.vms.volume import MAX_OF_TENANT, Volume
from orchestrator.services.pools import check_encryption, check_pool_has
from orchestrator.services.tenancy.quotas import volume_within_quota
from orchestrator.services.vms.planning import Planner
from orchestrator.store.database import Store
from orchestrator.store.records import ClaimLost
from orchestrator.store.transaction import Transaction


def capacity_on(planner: Planner, store: Store, host: str) -> HostCapacity:
    """:raises NotFound: ``host.unknown``; :raises NoCapacity: ``host.not_ready``: nothing is known of it"""
    with planner.index.current() as fleet:
        capacity = fleet.capacity(host)
    if capacity is not None:
        return capacity
    with store.read() as tx:
        tx.hosts.get(host)
    raise NoCapacity("host.not_ready", f"host {host} was never observed", hint="wait until it is ready")


def check_fits(tx: Transaction, volume: Volume) -> None:
    """Of its pool and its tenant.

    :raises NoCapacity: ``pool.full``; :raises Conflict: ``pool.busy``, ``volume.used_up``
    :raises QuotaExceeded: ``quota.exceeded``"""
    check_pool_has(tx, volume.pool, volume.size_bytes)
    if volume.snapshot_of is None:
        _check_number(tx, volume.tenant)
    volume_within_quota(tx, volume)


def add(tx: Transaction, volume: Volume, capacity: HostCapacity | None) -> None:
    """``capacity``: of the host that it is to lie on.

    :raises Conflict: ``volume.exists``; :raises NoCapacity: ``volume.no_capacity``"""
    with refusing_full(volume, volume.host):
        tx.volumes.add(volume, capacity)


def _check_number(tx: Transaction, tenant: str) -> None:
    if len(tx.volumes.list(tenant=tenant, snapshots=False)) >= MAX_OF_TENANT:
        raise Conflict(
            "volume.used_up",
            f"tenant {tenant} has {MAX_OF_TENANT} volumes, and no tenant has more",
            hint=f"'vgpuctl volume list --tenant {tenant}' shows them; delete one",
        )


def check_limits(limits: DiskLimits) -> None:
    """:raises InvalidInput: ``volume.limits_invalid``"""
    if limits.problem is not None:
        hint = f"{limits.problem[1]}; 0 is no limit"
        raise InvalidInput("volume.limits_invalid", "no disk can be limited so", hint=hint)


def check_may_be_encrypted(tx: Transaction, volume: Volume) -> None:
    """Of a new one.

    :raises InvalidInput: ``volume.encrypted_in_pool``; :raises QuotaExceeded: ``encryption.required``"""
    check_encryption(tx, volume.tenant, encrypted=volume.encrypted, copy=volume.state == "copying")
    if volume.encrypted and volume.pool is not None:
        hint = "give '--pool none', or leave out '--encrypted'"
        raise InvalidInput("volume.encrypted_in_pool", "no volume in a pool is encrypted", hint=hint)


def check_size(size_bytes: int) -> None:
    """:raises InvalidInput: ``volume.out_of_range``"""
    if not MIN_DISK_BYTES <= size_bytes <= MAX_DISK_BYTES:
        least, most = show_size(MIN_DISK_BYTES), show_size(MAX_DISK_BYTES)
        raise InvalidInput(
            "volume.out_of_range",
            f"a volume cannot have {show_size(size_bytes)}",
            hint=f"ask for at least {least} and at most {most}",
        )


@contextmanager
def refusing_full(volume: Volume, host: str | None, what: str = "a volume of ") -> Iterator[None]:
    """``what``: takes so much there.

    :raises NoCapacity: ``volume.no_capacity``"""
    try:
        yield
    except ClaimLost as error:
        size = show_size(volume.size_bytes)
        full = NoCapacity(
            "volume.no_capacity",
            f"host {host} has too little free disk for {what}{size}",
            hint=f"a volume that is attached nowhere can be deleted; 'vgpuctl host show {host}' tells what is free",
            details=str(error),
        )
        full.told = Reason(code=full.code, message=f"its host has too little free disk for {what}{size}")
        raise full from error
