# SPDX-License-Identifier: Apache-2.0
"""Evacuates hosts that have not answered for long, where the site says so: each is fenced by its agent first."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Final

from orchestrator.core.errors import VgpuctlError
from orchestrator.core.maintenance.maintenance import MOVING, HostTurn, Maintenance
from orchestrator.services.maintenance.maintenances import MaintenanceService, WantedEvacuation
from orchestrator.store.database import Store

log = logging.getLogger(__name__)
_AGAIN_S: Final = 3600.0
"""A host that could not be fenced is not tried again by itself for so long."""
_DAY_S: Final = 86400.0


@dataclass(frozen=True, kw_only=True)
class DeadHosts:
    """``after_s``: so long a host has not answered; 0: none is evacuated by itself. ``at_most``: hosts that may be away
    for that: where more went at about the same time, or all are, it is the network that is away. One that was evacuated
    counts for a day: what takes hosts one after the other goes on after each."""

    store: Store
    maintenances: MaintenanceService
    after_s: float
    at_most: int
    _too_many: set[frozenset[str]] = field(default_factory=set)
    """Hosts that were told to be away together."""

    def round(self) -> None:
        if not self.after_s:
            return
        now = self.maintenances.clock.now()
        with self.store.read() as tx:
            hosts = tx.hosts.list()
            last = {host.name: tx.maintenances.last_on(host.name) for host in hosts if host.state == "unreachable"}
        if not any(host.state == "ready" for host in hosts):
            return
        away = {host.name: host.last_seen_at for host in hosts if host.state == "unreachable" and host.last_seen_at}
        spans = {name: _DAY_S if _is_evacuated(last[name]) else 2 * self.after_s for name in away}
        for name, seen in away.items():
            if now - seen < self.after_s or _tried(last[name], now) or not self.maintenances.fencing.knows(name):
                continue
            together = {other for other, at in away.items() if abs(at - seen) <= spans[other]}
            if len(together) <= self.at_most:
                self._evacuate(name)
            else:
                self._tell(frozenset(together))

    def _tell(self, together: frozenset[str]) -> None:
        """Once."""
        if together not in self._too_many:
            self._too_many.add(together)
            names = ", ".join(sorted(together)[:5])
            log.warning("none of %d hosts is evacuated by itself: so many are away at once: %s", len(together), names)

    def _evacuate(self, host: str) -> None:
        wanted = WantedEvacuation(confirm=host, fence="agent", reason="the host does not answer")
        try:
            self.maintenances.evacuate(host, wanted)
        except VgpuctlError as error:  # it answers again, or another maintenance is under way there
            log.warning("host %s is not evacuated: %s", host, error.message)


def _is_evacuated(last: tuple[Maintenance, HostTurn] | None) -> bool:
    """Or is being so, which may take as long as it is away; it is not back."""
    return last is not None and last[0].act == "evacuate" and last[1].phase in MOVING


def _tried(last: tuple[Maintenance, HostTurn] | None, now: float) -> bool:
    """It goes on, or could not be fenced just now."""
    if last is None or last[0].act != "evacuate":
        return False
    ended_at = last[1].ended_at
    return ended_at is None or now - ended_at < _AGAIN_S
