# SPDX-License-Identifier: Apache-2.0
"""Evacuates hosts that have not answered for long, where the site says so: each is fenced by its agent first."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from orchestrator.core.errors import VgpuctlError
from orchestrator.core.maintenance.maintenance import HostTurn, Maintenance
from orchestrator.services.maintenance.maintenances import MaintenanceService, WantedEvacuation
from orchestrator.store.database import Store

log = logging.getLogger(__name__)
_AGAIN_S: Final = 3600.0
"""A host that could not be fenced is not tried again by itself for so long."""


@dataclass(frozen=True, kw_only=True)
class DeadHosts:
    """``after_s``: so long a host has not answered; 0: none is evacuated by itself. ``at_most``: hosts that may be away
    for that: where more are, or all, it is the network that is away."""

    store: Store
    maintenances: MaintenanceService
    after_s: float
    at_most: int

    def round(self) -> None:
        if not self.after_s:
            return
        now = self.maintenances.clock.now()
        with self.store.read() as tx:
            hosts = tx.hosts.list()
            last = {host.name: tx.maintenances.last_on(host.name) for host in hosts if host.state == "unreachable"}
        away = [host for host in hosts if host.state == "unreachable"]
        if len(away) > self.at_most or not any(host.state == "ready" for host in hosts):
            return
        for host in away:
            long = host.last_seen_at is not None and now - host.last_seen_at >= self.after_s
            if long and not _tried(last[host.name], now) and self.maintenances.fencing.knows(host.name):
                self._evacuate(host.name)

    def _evacuate(self, host: str) -> None:
        wanted = WantedEvacuation(confirm=host, fence="agent", reason="the host does not answer")
        try:
            self.maintenances.evacuate(host, wanted)
        except VgpuctlError as error:  # it answers again, or another maintenance is under way there
            log.warning("host %s is not evacuated: %s", host, error.message)


def _tried(last: tuple[Maintenance, HostTurn] | None, now: float) -> bool:
    """It goes on, or could not be fenced just now."""
    if last is None or last[0].act != "evacuate":
        return False
    ended_at = last[1].ended_at
    return ended_at is None or now - ended_at < _AGAIN_S
