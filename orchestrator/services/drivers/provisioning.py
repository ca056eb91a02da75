# SPDX-License-Identifier: Apache-2.0
"""Putting a driver, what it needs, and OVN on a host that is added: which bundles, and the operation that does it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from orchestrator.core.drivers.bundle import DriverBundle
from orchestrator.core.drivers.host_drivers import begins_anew, choose_bundle
from orchestrator.core.drivers.lock import Component, Locked, lock_of
from orchestrator.core.errors import Conflict, NotFound
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.core.operation import FINISHED, Operation
from orchestrator.core.ovn import HostInOvn, HostsOfOvn
from orchestrator.ports.clock import Clock, Ids
from orchestrator.ports.engine import Engine
from orchestrator.ports.host import Inspector
from orchestrator.services.begin import check_not_busy, new_operation, record
from orchestrator.services.drivers.locks import NOTHING
from orchestrator.services.messages import Started
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction

Bundles = tuple[DriverBundle, ...]


@dataclass(frozen=True, kw_only=True)
class Swap:
    """The bundles of one host. ``before``: what it goes back to; None: it has no driver, or nobody kept its bundle.

    ``base``: what the system needs is prepared as well; ``reboot``: the host may be rebooted where its driver cannot be
    swapped otherwise. ``ovn``: what it is told to be there; None: nothing of OVN is done."""

    driver: DriverBundle
    fabric_manager: DriverBundle | None
    before: DriverBundle | None
    before_fabric_manager: DriverBundle | None
    base: bool = False
    reboot: bool = False
    ovn: HostInOvn | None = None

    def inputs(self) -> dict[str, object]:
        return {
            "driver": self.driver.sha256,
            "version": self.driver.content.version,
            "fabric_manager": _digest(self.fabric_manager),
            "before_driver": _digest(self.before),
            "before_fabric_manager": _digest(self.before_fabric_manager),
            "base": self.base,
            "reboot": self.reboot,
            **({} if self.ovn is None else {"ovn": asdict(self.ovn)}),
        }


def _digest(bundle: DriverBundle | None) -> str | None:
    return None if bundle is None else bundle.sha256


def swap_to(bundles: Bundles, snapshot: HostSnapshot, driver: Locked, fabric: Locked | None) -> Swap:
    """What is put on a host that was seen so, and the way back.

    :raises NotFound: ``bundle.missing``
    """
    system, installed = snapshot.os_name, snapshot.driver_version
    chosen = choose_bundle(bundles, "host_driver", driver.version, os_name=system, sha256=driver.sha256)
    return Swap(
        driver=chosen,
        fabric_manager=None
        if fabric is None
        else choose_bundle(bundles, "fabric_manager", fabric.version, os_name=system, sha256=fabric.sha256),
        before=_kept(bundles, "host_driver", installed, system),
        before_fabric_manager=_kept(bundles, "fabric_manager", installed, system),
    )


def _kept(bundles: Bundles, component: Component, version: str | None, system: str) -> DriverBundle | None:
    if version is None:
        return None
    try:
        return choose_bundle(bundles, component, version, os_name=system)
    except NotFound:
        return None


def begin_swap(tx: Transaction, host: Host, kind: str, swap: Swap, *, clock: Clock, ids: Ids) -> Operation:
    """Of a host on which nothing else is being done; no VM starts there until it has ended."""
    operation = new_operation(kind, host, clock=clock, ids=ids)
    signs = "" if swap.ovn is None else "and sign_ovn_certificate host"
    record(tx, operation, host=host.name, inputs=swap.inputs(), said=signs)
    tx.hosts.update(replace(host, state="provisioning"))
    return operation


def needs_base(tx: Transaction, host: Host) -> bool:
    """Whether its kernel has to begin otherwise, and no VM that is not ours would be ended by that."""
    snapshot = tx.hosts.snapshot(host.name)
    if snapshot is None or not begins_anew(snapshot):
        return False
    ours = {vm.id for vm in tx.vms.list(host=host.name)}
    return not any(domain.active and domain.uuid not in ours for domain in snapshot.domains)


def check_free(tx: Transaction, host: Host) -> None:
    """:raises Conflict: ``host.busy``, ``host.not_ready``"""
    check_not_busy(tx, host)
    if host.state not in {"ready", "failed"}:
        raise Conflict(
            "host.not_ready",
            f"host {host.name} is {host.state}",
            hint=f"'vgpuctl host show {host.name}' says why; its driver can be put there once it is ready",
        )


@dataclass(frozen=True, kw_only=True)
class ProvisioningService:
    """Hosts one by one; many at once without stopping too many is services/driver_upgrades."""

    store: Store
    engine: Engine
    clock: Clock
    ids: Ids
    ovn: HostsOfOvn
    inspector: Inspector | None
    """None: the hosts are simulated."""

    def provision(self, name: str) -> Started:
        """Put the locked driver on a host, what its system needs for it, and OVN where its label asks for that; a
        second time changes nothing.

        :raises Conflict: ``host.busy``, ``host.not_ready``, ``driver.not_locked``, ``host.not_seen``,
            ``host.ovn_label``, ``ovn.hosts_elsewhere``
        :raises NotFound: ``host.unknown``, ``bundle.missing``
        """
        with self.store.begin() as tx:
            host = tx.hosts.get(name)
            for earlier in tx.operations.of_subject(name):
                if earlier.kind == "provision_host" and earlier.state not in FINISHED:
                    return Started(operation=earlier.id, name=name, existing=True)
            check_free(tx, host)
            swap, _ = self._wanted(tx, host)
            operation = begin_swap(tx, host, "provision_host", swap, clock=self.clock, ids=self.ids)
        self.engine.submit(operation.id)
        return Started(operation=operation.id, name=name)

    def plan(self, name: str) -> tuple[str, ...]:
        """What :meth:`provision` would change, for people: what goes with the driver as the host was seen last, and of
        OVN what its role says on the host, which takes seconds. Files of its system are not looked at.

        :raises Conflict: as :meth:`provision`, but for ``host.busy``, and ``host.simulated``
        """
        with self.store.read() as tx:
            host = tx.hosts.get(name)
            swap, snapshot = self._wanted(tx, host)
        changes = list(_changes(swap, snapshot))
        if swap.ovn is not None:
            if self.inspector is None:
                raise Conflict(
                    "host.simulated", "simulated hosts have nothing to check", hint="use a server of real hosts"
                )
            changes += [f"OVN: {change}" for change in self.inspector.ovn_changes(host, swap.ovn)]
        return tuple(changes)

    def _wanted(self, tx: Transaction, host: Host) -> tuple[Swap, HostSnapshot]:
        lock = lock_of(tx.driver_locks.get() or NOTHING, host.labels)
        wanted, snapshot = lock.locked.get("host_driver"), tx.hosts.snapshot(host.name)
        if wanted is None:
            raise _not_locked(host.name)
        if snapshot is None:
            raise Conflict("host.not_seen", f"host {host.name} was never observed", hint="wait until its agent answers")
        swap = swap_to(tx.driver_bundles.list(), snapshot, wanted, lock.locked.get("fabric_manager"))
        return replace(swap, base=True, ovn=self.ovn.host(host.name, host.labels)), snapshot


def _changes(swap: Swap, snapshot: HostSnapshot) -> Iterator[str]:
    if begins_anew(snapshot):
        yield "the host is rebooted for its IOMMU, or without nouveau"
    driver, manager, fabric = swap.driver.content.version, swap.fabric_manager, snapshot.fabric
    if snapshot.driver_version != driver:
        yield f"driver {snapshot.driver_version or 'none'} becomes {driver}"
    if manager is not None and fabric is not None and fabric.version != manager.content.version:
        yield f"fabric manager {fabric.version or 'none'} becomes {manager.content.version}"


def _not_locked(name: str) -> Conflict:
    return Conflict(
        "driver.not_locked",
        f"no version of host_driver is locked for host {name}",
        hint="'vgpuctl driver lock apply drivers.lock.yaml' says which one it is to be",
    )
