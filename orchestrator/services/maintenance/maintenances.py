# SPDX-License-Identifier: Apache-2.0
"""Declared maintenances: list, show, pause, go on, cancel. What happens between is reconcile/maintenances."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from orchestrator.core.errors import Conflict, NotFound
from orchestrator.core.maintenance.leaving import AwaitedTenants
from orchestrator.core.maintenance.maintenance import (
    REBOOTING,
    HostTurn,
    Maintenance,
    cancelled,
    is_over,
    paused,
    resumed,
    settled,
)
from orchestrator.core.operation import StepRecord
from orchestrator.core.vms.vm import VmState
from orchestrator.ports.clock import Clock
from orchestrator.services.acting import actor
from orchestrator.services.maintenance.waits import PlannedMaintenances, waits_of
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction

NEWEST: Final = "newest"
"""Stands for the one that was declared last."""
MAX_SHOWN: Final = 100


@dataclass(frozen=True, kw_only=True)
class MaintenanceService:
    """``advance`` is told that there is something to do. ``name``: the id of one, or :data:`NEWEST`."""

    store: Store
    clock: Clock
    advance: Callable[[], object]

    def list(self) -> tuple[Maintenance, ...]:
        """The newest :data:`MAX_SHOWN`, the newest first."""
        with self.store.read() as tx:
            return tx.maintenances.list(most=MAX_SHOWN)

    def active(self) -> tuple[Maintenance, ...]:
        """Those that are not over, the newest first."""
        with self.store.read() as tx:
            return tx.maintenances.active()

    def get(self, name: str = NEWEST) -> Maintenance:
        """:raises NotFound: ``maintenance.unknown``"""
        with self.store.read() as tx:
            return _known(tx, name)

    def now(self, maintenance: Maintenance) -> MaintenanceNow:
        """For whom its hosts wait, and how far they are."""
        with self.store.read() as tx:
            return seen_now(tx, maintenance, self.clock.now())

    def planned(self) -> PlannedMaintenances:
        """Which VMs will be stopped, when, and what for."""
        with self.store.read() as tx:
            return PlannedMaintenances(tx, self.clock.now())

    def pause(self, name: str = NEWEST) -> Maintenance:
        """Nothing more begins until :meth:`resume`. :raises Conflict: ``maintenance.over``"""
        return self._change(name, "pause_maintenance", paused)

    def resume(self, name: str = NEWEST) -> Maintenance:
        """Also after a halt: the failures so far are forgiven. :raises Conflict: ``maintenance.over``"""
        return self._change(name, "resume_maintenance", resumed)

    def cancel(self, name: str = NEWEST) -> Maintenance:
        """What has begun ends, hosts that wait stay as they are. :raises Conflict: ``maintenance.over``"""
        return self._change(name, "cancel_maintenance", cancelled)

    def _change(self, name: str, action: str, change: Callable[[Maintenance], Maintenance]) -> Maintenance:
        now = self.clock.now()
        with self.store.begin() as tx:
            maintenance = _known(tx, name)
            if is_over(maintenance):
                raise Conflict(
                    "maintenance.over",
                    f"{maintenance.title} has ended: {maintenance.state}",
                    hint="'vgpuctl maintenance list' shows those that go on",
                )
            tx.maintenances.put(settled(change(maintenance), now))
            tx.audit.append(at=now, actor=actor(), action=action, subject=maintenance.title, outcome="accepted")
        self.advance()
        return self.get(maintenance.id)


def _known(tx: Transaction, name: str) -> Maintenance:
    maintenance = tx.maintenances.newest() if name == NEWEST else tx.maintenances.find(name)
    if maintenance is None:
        raise NotFound(
            "maintenance.unknown",
            "no maintenance was ever declared" if name == NEWEST else f"no maintenance has the id {name[:40]!a}",
            hint="'vgpuctl maintenance list' shows what was declared",
        )
    return maintenance


@dataclass(frozen=True, kw_only=True)
class MaintenanceNow:
    """A maintenance at one moment. Both by name of host."""

    waits: Mapping[str, AwaitedTenants]
    progress: Mapping[str, str]
    """Within its phase, of those that are under way."""
    rebooting: frozenset[str]
    """Those that are swapped and wait for their reboot."""
    at: float


def seen_now(tx: Transaction, maintenance: Maintenance, now: float) -> MaintenanceNow:
    """Of the maintenance as it is stored, or as it is planned."""
    steps = {host.host: _step(tx, host) for host in maintenance.hosts}
    progress = ((host.host, _progress(tx, host, steps[host.host])) for host in maintenance.hosts)
    return MaintenanceNow(
        waits=waits_of(tx, maintenance, now),
        progress={host: text for host, text in progress if text is not None},
        rebooting=frozenset(host for host, step in steps.items() if step and step.message.startswith(REBOOTING)),
        at=now,
    )


def _step(tx: Transaction, one: HostTurn) -> StepRecord | None:
    """Of the swap, the one that is under way."""
    if one.phase != "swapping" or one.swap is None:
        return None
    try:
        steps = tx.operations.get(one.swap).operation.steps
    except NotFound:  # it ended long ago, and the maintenance will judge by what the host shows
        return None
    return next((step for step in steps if step.state in {"running", "undoing"}), None)


def _progress(tx: Transaction, one: HostTurn, now: StepRecord | None) -> str | None:
    if now is not None:
        back = "taken back: " if now.state == "undoing" else ""
        return back + ": ".join(dict.fromkeys(filter(None, [now.title, now.message])))
    if one.phase not in {"emptying", "refilling"} or not one.vms:
        return None
    vms = [vm for name in one.vms if (vm := tx.vms.find_id(name)) is not None and vm.wanted == "running"]
    wanted: VmState = "stopped" if one.phase == "emptying" else "running"
    ended = sum(vm.state == wanted for vm in vms)
    return f"{ended} of {len(vms)} VMs " + ("are stopped" if one.phase == "emptying" else "run again")
