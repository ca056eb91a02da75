# SPDX-License-Identifier: Apache-2.0
"""Pools that several hosts mount: made known, shown, deleted; and what a request that names one is refused for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from orchestrator.core.domain_xml.domain import STORAGE
from orchestrator.core.errors import Conflict, InvalidInput, NoCapacity, QuotaExceeded, Reason
from orchestrator.core.hosts.pool import DIRECTORY, NO_POOL, Pool, check_pool_name
from orchestrator.core.labels import kept_from
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.units import MIB, show_size
from orchestrator.core.vms.vm import VmShape
from orchestrator.ports.engine import Engine
from orchestrator.services.begin import new_operation, record
from orchestrator.services.messages import CreateVm, Started
from orchestrator.services.vms.planning import Planner
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction

_ASKED: Final = 8


@dataclass(frozen=True, kw_only=True)
class PoolInfo:
    """A pool, and the hosts that reach it, by name."""

    pool: Pool
    hosts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class PoolService:
    store: Store
    engine: Engine
    planner: Planner
    observe: Callable[[str], object]
    """Observes the host of that name now."""

    def create(self, name: str, host: str | None = None) -> Started:
        """``host``: that writes the id into the directory, which is mounted there; None: one that has it mounted.

        :raises InvalidInput: ``pool.name_invalid``; :raises NotFound: ``host.unknown``
        :raises Conflict: ``pool.exists``; :raises NoCapacity: ``pool.not_reached``"""
        check_pool_name(name)
        if name == NO_POOL:
            raise InvalidInput("pool.name_invalid", f"{name} is said for no pool", hint="choose another name")
        with self.store.read() as tx:
            tx.pools.check_new(name)  # before hosts are asked, which takes a while
        writes = self._mounting(name, host)
        clock, ids = self.planner.clock, self.planner.ids
        pool = Pool(id=ids.new_uuid(), name=name, state="new", created_at=clock.now())
        with self.store.begin() as tx:
            tx.pools.add(pool)
            if writes is None:
                raise not_reached(name, host, f"; of many the first {_ASKED} are asked, and --host names another")
            started = self._begin(tx, "create_pool", pool, writes)
        self.engine.submit(str(started.operation))
        return started

    def _mounting(self, name: str, only: str | None) -> str | None:
        """A host that has it mounted, as it was observed last, or now: of many hosts the first few are asked again."""
        with self.store.read() as tx:  # snapshots of all hosts may have to be read, which no writer waits for
            if only is not None:
                tx.hosts.get(only)
            if (host := _that_mounts(tx, name, only)) is not None:
                return host
            hosts = [ready.name for ready in tx.observations.ready() if only in {None, ready.name}]
        for host in hosts[:_ASKED]:
            self.observe(host)
            with self.store.read() as tx:
                if _that_mounts(tx, name, host) is not None:
                    return host
        return None

    def get(self, name: str) -> PoolInfo:
        """:raises NotFound: ``pool.unknown``"""
        with self.store.read() as tx:
            pool = tx.pools.get(name)
        return next(info for info in self._with_hosts((pool,)))

    def list(self) -> tuple[PoolInfo, ...]:
        """By name."""
        with self.store.read() as tx:
            pools = tx.pools.list()
        return self._with_hosts(pools)

    def delete(self, name: str) -> Started:
        """One in which nothing lies; its directory stays, without its id and base images.

        :raises NotFound: ``pool.unknown``; :raises Conflict: ``pool.in_use``, ``pool.busy``
        :raises NoCapacity: ``pool.not_reached``"""
        host = next(iter(self.get(name).hosts), None)
        with self.store.begin() as tx:
            pool = tx.pools.get(name)
            if pool.state != "ready":
                raise Conflict(
                    "pool.busy", f"pool {name} is {pool.state}", hint="'vgpuctl operation list' shows by what"
                )
            if pool.claimed_bytes:
                raise Conflict(
                    "pool.in_use", f"disks and volumes are in pool {name}",
                    hint="delete them first: 'vgpuctl list-vms -A' and 'vgpuctl volume list -A' show them",
                    details=f"{pool.claimed_bytes} bytes are claimed",
                )  # fmt: skip
            _check_unnamed(tx, name)
            if host is None:
                raise not_reached(name)
            tx.pools.set_state(pool.id, "deleting")
            started = self._begin(tx, "delete_pool", pool, host)
        self.engine.submit(str(started.operation))
        return started

    def _begin(self, tx: Transaction, kind: str, pool: Pool, host: str) -> Started:
        operation = new_operation(kind, pool, clock=self.planner.clock, ids=self.planner.ids)
        record(tx, operation, host=host, inputs={"pool": pool.name})
        return Started(operation=operation.id, name=pool.name)

    def _with_hosts(self, pools: tuple[Pool, ...]) -> tuple[PoolInfo, ...]:
        with self.planner.index.current() as fleet:
            hosts = fleet.fleet().hosts
            return tuple(
                PoolInfo(pool=pool, hosts=tuple(host.view.name for host in hosts if pool.on_hosts in host.facts.pools))
                for pool in pools
            )


def reaching(planner: Planner, *pools: str, only: str | None = None, lies_of: str | None = None) -> str:
    """A host that is ready and reaches these pools, which hosts call so. ``only``: that one, as others do not count.
    ``lies_of``: the tenant whose volume comes to lie there, and on no host that is kept for another.

    :raises NoCapacity: ``pool.not_reached``, ``host.kept``"""
    kept, names = False, [pool.partition(".")[0] for pool in pools]
    with planner.index.current() as fleet:
        for host in fleet.fleet().hosts:
            named = only in {None, host.view.name}
            if named and host.seen.host.state == "ready" and set(pools) <= set(host.facts.pools):
                if lies_of is None or kept_from(host.seen.host.labels, lies_of) is None:
                    return host.view.name
                kept = True
    if kept:
        words = f"hosts that have pool {names[0]} mounted are kept for other tenants"
        raise NoCapacity("host.kept", words, hint="'vgpuctl host list -o wide' has the labels")
    if len(names) == 1:
        raise not_reached(names[0], only)
    both, hint = " and ".join(names), "mount both on one host, which then copies"
    raise NoCapacity("pool.not_reached", f"no host that is ready has pools {both} mounted", hint=hint)


def _that_mounts(tx: Transaction, name: str, only: str | None) -> str | None:
    """A host where a directory is mounted under the name; ``only``: that one, as others do not count."""
    for host in tx.observations.ready():
        if only not in {None, host.name}:
            continue
        snapshot = tx.hosts.snapshot(host.name)
        if snapshot is not None and any(pool.name == name and pool.problem is None for pool in snapshot.pools):
            return host.name
    return None


def not_reached(name: str, host: str | None = None, more: str = "") -> NoCapacity:
    """``host``: that was asked for alone. ``more``: of the hint, where none was."""
    at = f"mount its directory at {STORAGE}/{DIRECTORY}/{name}"
    if host is not None:
        return NoCapacity("pool.not_reached", f"host {host} is not ready, or has not mounted pool {name}", hint=at)
    return NoCapacity("pool.not_reached", f"no host that is ready has pool {name} mounted", hint=f"{at} on hosts{more}")


def _check_unnamed(tx: Transaction, name: str) -> None:
    """That no new disk would lie there unasked. :raises Conflict: ``pool.in_use``"""
    if usual := tx.policies.with_pool(name):
        hint = f"'vgpuctl policy set {usual[0]} pool=none' has its disks lie on hosts"
        raise Conflict("pool.in_use", f"policies name pool {name}: of {', '.join(usual[:5])}", hint=hint)
    if offered := [offering.name for offering in tx.offerings.list() if offering.pool == name]:
        hint = f"add it again without the pool, also while VMs have it, or 'vgpuctl profile remove {offered[0]}'"
        raise Conflict("pool.in_use", f"offerings name pool {name}: {', '.join(offered[:5])}", hint=hint)


def check_may_be_usual(tx: Transaction, name: str) -> None:
    """That a policy or an offering may name the pool for disks whose request names none.

    :raises NotFound: ``pool.unknown``; :raises Conflict: ``pool.busy``"""
    pool = tx.pools.get(name)
    if pool.state != "ready":
        raise Conflict("pool.busy", f"pool {pool.name} is {pool.state}", hint="'vgpuctl operation list' shows by what")


def check_disk_encryption(tx: Transaction, vm: VmShape, pool: str | None) -> None:
    """Of a wanted VM's disk, which would lie in the pool or in none. A backup may be booted: that VM is nobody's.

    :raises InvalidInput: ``vm.encrypted_in_pool``; :raises QuotaExceeded: ``encryption.required``"""
    if vm.encrypted and pool is not None:
        hint = "give '--pool none', or leave out '--encrypted'"
        raise InvalidInput("vm.encrypted_in_pool", "no VM's disk in a pool is encrypted", hint=hint)
    request = vm if isinstance(vm, CreateVm) else None
    if request is None or not request.boot_timeout_s:
        copy = request is not None and (request.from_snapshot or request.from_backup) is not None
        check_encryption(tx, vm.tenant, encrypted=vm.encrypted, copy=copy)


def check_encryption(tx: Transaction, tenant: str, *, encrypted: bool, copy: bool = False) -> None:
    """Of a new VM's disk, or a new volume: what its tenant's policy says. ``copy``: of what is not encrypted, as which
    none can be.

    :raises QuotaExceeded: ``encryption.required``"""
    if not encrypted and tx.policies.get(tenant).encryption == "always":
        words = f"new VMs and volumes of tenant {tenant} are encrypted{', and no copy is' if copy else ''}"
        hint = f"let an operator allow others: 'vgpuctl policy set {tenant} encryption=optional'"
        if not copy:
            hint = f"say '--encrypted', or {hint}"
        raise QuotaExceeded("encryption.required", words, hint=hint)


def pool_on_hosts(tx: Transaction, name: str | None, tenant: str, offering: Offering | None = None) -> str | None:
    """What hosts call the pool that a request names, else its offering, else the policy of its tenant.

    :raises NotFound: ``pool.unknown``"""
    name = name or (offering and offering.pool) or tx.policies.get(tenant).pool or NO_POOL
    return None if name == NO_POOL else tx.pools.get(name).on_hosts


def check_pool_has(tx: Transaction, pool: str | None, size_bytes: int) -> None:
    """Before anything is written: what is promised and what is free now, as files may lie there that nobody claims.

    :raises NoCapacity: ``pool.full``; :raises Conflict: ``pool.busy``"""
    if pool is None:
        return
    known = tx.pools.get(pool)
    if known.state != "ready":
        raise Conflict(
            "pool.busy",
            f"pool {known.name} is {known.state}",
            hint=f"'vgpuctl pool show {known.name}' tells when it is ready",
        )
    free = min(known.capacity_bytes - known.claimed_bytes, known.free_bytes)
    if size_bytes > free:
        size = show_size(size_bytes)
        full = NoCapacity(
            "pool.full",
            f"pool {known.name} has {show_size(max(0, free) // MIB * MIB)} left, not {size}",
            hint="ask for less, delete what is there, or make its file system larger; files of VMs that were given up "
            f"with their host are in {STORAGE}/{DIRECTORY}/{known.name} on hosts",
        )
        full.told = Reason(code=full.code, message=f"pool {known.name} has too little left for {size}")
        raise full
