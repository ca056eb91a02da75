# SPDX-License-Identifier: Apache-2.0
"""For whom a driver upgrade waits, and which VMs it will stop: core/drivers/leaving, of what the database says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from orchestrator.core.drivers.leaving import (
    STOP,
    WAIT,
    AwaitedTenants,
    DailyWindow,
    open_together_at,
    parse_leave,
    wait_of,
)
from orchestrator.core.drivers.upgrade import OVER, DriverUpgrade, HostPhase, Policy, held_vms
from orchestrator.core.hosts.host import Host
from orchestrator.core.vms.vm import Vm
from orchestrator.store.transaction import Transaction

AT_REST: Final = frozenset({"stopped", "lost", "failed"})
"""States of VMs that need not be stopped."""
_TO_STOP: Final[frozenset[HostPhase]] = frozenset({"waiting", "emptying"})


def waits_of(tx: Transaction, upgrade: DriverUpgrade, now: float) -> dict[str, AwaitedTenants]:
    """By name, the hosts that are not taken out, or do not get empty, because of their tenants."""
    if upgrade.policy == "wait":
        names = [host.host for host in upgrade.hosts if host.phase == "emptying"]
        on = _counted(vm for name in names for vm in tx.vms.list(host=name))
        return _waits(on, {tenant: WAIT for vms in on.values() for tenant in vms}, None, now)
    if upgrade.policy == "stop" or upgrade.state in OVER:
        return {}
    waiting = {host.host for host in upgrade.hosts if host.phase == "waiting"}
    policies = tx.policies.driver_upgrades()
    on = _counted(vm for tenant in policies for vm in tx.vms.list(tenant=tenant) if vm.host in waiting)
    return _waits(on, policies, upgrade.window, now)


def _counted(vms: Iterable[Vm]) -> dict[str, Counter[str]]:
    """By host, how many VMs of each tenant are not at rest."""
    counts: dict[str, Counter[str]] = {}
    for vm in vms:
        if vm.state not in AT_REST:
            counts.setdefault(vm.host, Counter())[vm.spec.tenant] += 1
    return counts


def _waits(
    on: Mapping[str, Mapping[str, int]], policies: Mapping[str, str], window: DailyWindow | None, now: float
) -> dict[str, AwaitedTenants]:
    waits = ((host, wait_of(vms, policies, window, now)) for host, vms in on.items())
    return {host: wait for host, wait in waits if wait is not None}


def under_way(tx: Transaction) -> DriverUpgrade | None:
    """The upgrade that has not ended; cheap while there is none."""
    return tx.driver_upgrades.newest() if tx.driver_upgrades.is_active() else None


def is_emptied(tx: Transaction, host: str) -> bool:
    """Whether VMs are being stopped there for a driver upgrade; not where it waits until their users stop them."""
    upgrade = under_way(tx)
    if upgrade is None or upgrade.policy == "wait":
        return False
    return any(turn.host == host and turn.phase == "emptying" for turn in upgrade.hosts)


def gets_driver(tx: Transaction, host: Host) -> bool:
    """Whether no VM is started there: it gets a driver, or is being emptied for one."""
    return host.state == "provisioning" or (host.cordoned and is_emptied(tx, host.name))


def is_held(tx: Transaction, vm: Vm) -> bool:
    """Whether an upgrade stops it, or has, and starts it again if that is wanted then."""
    return vm.id in held_vms(under_way(tx), vm.host)


def overridden_by(tx: Transaction, hosts: Iterable[str], policy: Policy) -> tuple[str, ...]:
    """Tenants with VMs there that are stopped although their own policies say something else, by name."""
    names, policies = frozenset(hosts), tx.policies.driver_upgrades() if policy == "stop" else {}
    return tuple(
        sorted(
            tenant
            for tenant in policies
            if any(vm.host in names and vm.state not in AT_REST for vm in tx.vms.list(tenant=tenant))
        )
    )


@dataclass(frozen=True, kw_only=True)
class PlannedStop:
    """Of a VM that a driver upgrade will stop, and start again."""

    policy: str
    """``stop``: in its host's turn; ``22:00-05:00``: then, UTC; ``wait``: when its users stop it."""
    opens_at: float | None
    """When it may be stopped at the earliest; None: when the turn of its host comes, or when its user stops it."""


@dataclass(frozen=True, kw_only=True)
class PlannedStops:
    """Of all VMs at one moment. ``hosts``: those whose VMs are to be stopped. ``held``: ids of VMs of hosts that are
    under way."""

    hosts: frozenset[str] = frozenset()
    held: frozenset[str] = frozenset()
    upgrade: DriverUpgrade | None = None
    policies: Mapping[str, str]
    now: float = 0.0

    def of(self, vm: Vm) -> PlannedStop | None:
        """None: it is not stopped for an upgrade. One that is stopped already has it until it starts again."""
        if vm.state == "stopped" and vm.wanted == "running" and vm.id in self.held:
            return PlannedStop(policy=STOP, opens_at=None)
        if self.upgrade is None or vm.host not in self.hosts or vm.state in AT_REST:
            return None
        policy = self.policies.get(vm.spec.tenant, STOP) if self.upgrade.policy == "tenant" else self.upgrade.policy
        windows = [window for window in (parse_leave(policy), self.upgrade.window) if window is not None]
        opens = open_together_at(windows, self.now)
        later = policy != WAIT and opens is not None and opens > self.now
        return PlannedStop(policy=policy, opens_at=opens if later else None)


def planned_stops(tx: Transaction, now: float) -> PlannedStops:
    """Nothing is read of hosts or VMs."""
    upgrade = under_way(tx)
    if upgrade is None:
        return PlannedStops(policies={})
    phases = frozenset({"emptying"}) if upgrade.state in OVER else _TO_STOP
    hosts = frozenset(host.host for host in upgrade.hosts if host.phase in phases)
    held = frozenset(vm for host in upgrade.hosts for vm in held_vms(upgrade, host.host))
    return PlannedStops(hosts=hosts, held=held, upgrade=upgrade, policies=tx.policies.driver_upgrades(), now=now)
