# SPDX-License-Identifier: Apache-2.0
"""Rolling upgrades of drivers: which hosts get which driver, declared as a maintenance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.catalogue.profiles import shipped_profiles
from orchestrator.core.drivers.check import forbidden_pair
from orchestrator.core.drivers.lock import Locked
from orchestrator.core.drivers.matrix import version_key
from orchestrator.core.errors import Conflict, InvalidInput, NotFound, Reason
from orchestrator.core.hosts.host import Host
from orchestrator.core.maintenance.leaving import WAIT, AwaitedTenants, DailyWindow, show_tenants
from orchestrator.core.maintenance.maintenance import (
    NOW,
    HostTurn,
    Maintenance,
    Planned,
    Reboot,
    UpgradePolicy,
)
from orchestrator.operations.steps.driver import users_of
from orchestrator.ports.clock import Clock, Ids
from orchestrator.services.acting import actor
from orchestrator.services.drivers.provisioning import Bundles, Swap, swap_to
from orchestrator.services.maintenance.waits import overridden_by, waits_of
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction

MAX_AT_ONCE: Final = 1000
MAX_HOSTS: Final = 100_000
_SHOWN: Final = 5
GONE: Final = frozenset({"forgotten", "removing", "enrolling"})
"""States of hosts that an upgrade has nothing to do with, or no more."""


@dataclass(frozen=True, kw_only=True)
class WantedUpgrade:
    """``hosts``: by name; empty: all."""

    version: str
    hosts: tuple[str, ...] = ()
    policy: UpgradePolicy = "tenant"
    max_unavailable: int = 2
    canary: int = 1
    failure_budget: int = 1
    window: DailyWindow | None = None
    reboot: Reboot = "if-needed"
    when: Planned = NOW
    parallel: int = 4
    max_bytes_per_s: int | None = None


def swap_of(tx: Transaction, bundles: Bundles, host: Host, version: str) -> Swap:
    """The bundles that take a host to that version and back.

    :raises Conflict: ``upgrade.host_not_ready``, ``upgrade.no_driver``, ``upgrade.no_way_back``
    :raises NotFound: ``bundle.missing``
    """
    snapshot = tx.hosts.snapshot(host.name)
    if snapshot is None or host.state != "ready":
        raise Conflict(
            "upgrade.host_not_ready",
            f"host {host.name} is {host.state}",
            hint="mend it first, or leave it out with --hosts",
        )
    if snapshot.driver_version is None:
        raise Conflict(
            "upgrade.no_driver",
            f"host {host.name} has no driver to upgrade",
            hint=f"'vgpuctl host provision {host.name}' brings the first one",
        )
    fabric = any(bundle.content.kind == "fabric_manager" and bundle.content.version == version for bundle in bundles)
    swap = swap_to(
        bundles,
        snapshot,
        Locked(component="host_driver", version=version),
        Locked(component="fabric_manager", version=version) if fabric else None,
    )
    if swap.before is None:
        raise Conflict(
            "upgrade.no_way_back",
            f"there is no bundle of driver {snapshot.driver_version}, which host {host.name} has",
            hint="'vgpuctl driver bundle add FILE --key KEY' brings it, so that a host that fails gets it back",
        )
    return swap


def kept_by_others(tx: Transaction, host: Host) -> str | None:
    """Why its driver cannot be swapped whatever becomes of our VMs, as it was seen last; None: nothing else uses it."""
    snapshot, vms = tx.hosts.snapshot(host.name), tx.vms.list(host=host.name)
    leaving = {vm.id for vm in vms} | {device.name for vm in vms for device in vm.devices}
    used = () if snapshot is None else users_of(snapshot, leaving)
    return f"its driver is used by what is not ours: {', '.join(used[:_SHOWN])}" if used else None


@dataclass(frozen=True, kw_only=True)
class DriverUpgradeService:
    """``advance`` is told that there is something to do."""

    store: Store
    clock: Clock
    ids: Ids
    advance: Callable[[], object]

    def plan(self, wanted: WantedUpgrade) -> Maintenance:
        """What :meth:`start` would begin; raises what it would raise."""
        with self.store.read() as tx:
            return self._planned(tx, wanted)

    def start(self, wanted: WantedUpgrade) -> Maintenance:
        """From now on hosts get that driver, some at a time. Nothing is begun when any of them must be refused.

        :raises InvalidInput: ``driver.version_invalid``, ``upgrade.number_invalid``; :raises NotFound: ``host.unknown``
        :raises Conflict: ``upgrade.active``, ``upgrade.refused``, ``upgrade.nothing_to_do``,
            ``upgrade.windows_apart``
        """
        with self.store.begin() as tx:
            upgrade = self._planned(tx, wanted)
            tx.maintenances.add(upgrade)
            over = f" over the policies of {', '.join(upgrade.overridden)}" if upgrade.overridden else ""
            how = "" if upgrade.policy == "tenant" else f", VMs {upgrade.policy}{over}"
            how += ", reboot never" if upgrade.reboot == "never" else ""
            hosts = f"{len(upgrade.hosts)} hosts"
            action = f"upgrade_drivers {wanted.version}{how}"
            tx.audit.append(at=self.clock.now(), actor=actor(), action=action, subject=hosts, outcome="accepted")
        self.advance()
        with self.store.read() as tx:
            return tx.maintenances.find(upgrade.id) or upgrade

    def _planned(self, tx: Transaction, wanted: WantedUpgrade) -> Maintenance:
        _check_numbers(wanted)
        running = next((its for its in tx.maintenances.active() if its.act == "upgrade"), None)
        if running is not None:
            raise Conflict(
                "upgrade.active",
                f"an upgrade to {running.version} is {running.state}",
                hint=f"'vgpuctl maintenance show {running.id}' shows it; one goes on at a time",
            )
        chosen = _chosen(tx, wanted.hosts)
        reasons = [*_refused(tx, chosen, wanted.version), *_guests(tx, chosen, wanted.version)]
        if reasons:
            raise Conflict(
                "upgrade.refused",
                f"{reasons[0].message}" + (f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""),
                hint="nothing was begun; mend it, or choose hosts with --hosts",
                reasons=tuple(reasons),
            )
        hosts = tuple(_at_first(tx, host, wanted.version) for host in chosen)
        if all(host.phase == "done" for host in hosts):
            raise Conflict(
                "upgrade.nothing_to_do",
                f"driver {wanted.version} is on all {len(hosts)} hosts that were chosen",
                hint="'vgpuctl driver check --all' shows which host has which",
            )
        now = self.clock.now()
        upgrade = Maintenance(
            id=self.ids.new_uuid(),
            act="upgrade",
            version=wanted.version,
            policy=wanted.policy,
            max_unavailable=wanted.max_unavailable,
            canary=wanted.canary,
            failure_budget=wanted.failure_budget,
            created_at=now,
            hosts=hosts,
            reason=wanted.when.reason,
            starts_at=wanted.when.begin(now),
            ends_by=wanted.when.end(now),
            window=wanted.window,
            reboot=wanted.reboot,
            parallel=wanted.parallel,
            max_bytes_per_s=wanted.max_bytes_per_s,
            overridden=overridden_by(tx, (host.host for host in hosts if host.phase == "waiting"), wanted.policy),
        )
        return _in_order(upgrade, waits_of(tx, upgrade, upgrade.created_at))


def _in_order(upgrade: Maintenance, waits: Mapping[str, AwaitedTenants]) -> Maintenance:
    """Hosts that nobody has to be waited for go first, the canary among them; then those with windows.

    :raises Conflict: ``upgrade.windows_apart``
    """
    apart = [(name, wait) for name, wait in waits.items() if wait.no_common_window]
    if apart:
        name, wait = apart[0]
        window = "" if upgrade.window is None else f" and of the upgrade ({upgrade.window})"
        more = f" (and {len(apart) - 1} more hosts)" if len(apart) > 1 else ""
        raise Conflict(
            "upgrade.windows_apart",
            f"on host {name} the windows of {show_tenants(wait.tenants)}{window} have no minute in common{more}",
            hint="--vms stop overrides them, --hosts leaves hosts out, "
            f"'vgpuctl policy set {wait.tenants[0].tenant} maintenance=stop' gives a tenant another one",
        )

    def rank(one: HostTurn) -> tuple[bool, bool, float]:
        wait = waits.get(one.host)
        awaited = wait is not None and any(tenant.policy == WAIT for tenant in wait.tenants)
        return one.phase != "waiting", awaited, (wait.opens_at or 0.0) if wait is not None else 0.0

    return replace(upgrade, hosts=tuple(sorted(upgrade.hosts, key=rank)))


def _check_numbers(wanted: WantedUpgrade) -> None:
    version_key(wanted.version)
    beside = (wanted.canary, wanted.failure_budget)
    if not (1 <= wanted.max_unavailable <= MAX_AT_ONCE and all(0 <= number <= MAX_HOSTS for number in beside)):
        raise InvalidInput(
            "upgrade.number_invalid",
            f"{wanted.max_unavailable} at once with {wanted.canary} before them and {wanted.failure_budget} failures",
            hint=f"1 to {MAX_AT_ONCE} hosts at once; 0 to {MAX_HOSTS} canaries, and as many failures",
        )


def _chosen(tx: Transaction, names: Sequence[str]) -> list[Host]:
    """:raises Conflict: ``upgrade.nothing_to_do``; :raises NotFound: ``host.unknown``"""
    if names:
        return [tx.hosts.get(name) for name in dict.fromkeys(names)]
    hosts = [host for host in tx.hosts.list() if host.state not in GONE]
    if not hosts:
        raise Conflict(
            "upgrade.nothing_to_do", "there are no hosts yet", hint="'vgpuctl host add NAME --address A' adds one"
        )
    return hosts


def _at_first(tx: Transaction, host: Host, version: str) -> HostTurn:
    """A host that is known to keep its driver is no failure of the upgrade: its budget counts what nobody foresaw."""
    if _has(tx, host, version):
        return HostTurn(host=host.name, phase="done", why="it had this driver")
    why = kept_by_others(tx, host)
    return HostTurn(host=host.name) if why is None else HostTurn(host=host.name, phase="kept", seen=True, why=why)


def _has(tx: Transaction, host: Host, version: str) -> bool:
    snapshot = tx.hosts.snapshot(host.name)
    return host.state == "ready" and snapshot is not None and snapshot.driver_version == version


def _refused(tx: Transaction, hosts: Sequence[Host], version: str) -> list[Reason]:
    bundles, reasons = tx.driver_bundles.list(), list[Reason]()
    for host in hosts:
        try:
            if not _has(tx, host, version):
                swap_of(tx, bundles, host, version)
        except (Conflict, NotFound) as error:
            reasons.append(Reason(code=error.code, message=error.message, subjects=(host.name,)))
    return reasons


def _guests(tx: Transaction, hosts: Sequence[Host], version: str) -> list[Reason]:
    """VMs whose driver would not run under the new one: they would not come back."""
    matrix, names = shipped_profiles().catalogue.driver_matrix, {host.name for host in hosts}
    drivers = {image.name: image.guest_driver for image in tx.images.list()}
    reasons = []
    for vm in tx.vms.list():
        driver = drivers.get(vm.spec.image) if vm.host in names else None
        why = None if driver is None else forbidden_pair(matrix, host_driver=version, guest_driver=driver)
        if why is not None:
            message = f"VM {vm.full_name} on host {vm.host} has driver {driver}: {why}"
            reasons.append(Reason(code="upgrade.guest_forbids", message=message, subjects=(vm.full_name,)))
    return reasons
