# SPDX-License-Identifier: Apache-2.0
"""Power of hosts that live in memory."""

from __future__ import annotations

from typing import cast

from orchestrator.core.errors import Retryable
from orchestrator.ports.clock import Clock, Ids
from orchestrator.ports.host import HostLink
from orchestrator.services.fleet.index import FleetIndex
from orchestrator.services.fleet.view import Overcommit
from orchestrator.services.maintenance.defragmenting import DefragmentationService
from orchestrator.services.maintenance.maintenances import MaintenanceService
from orchestrator.services.vms.capacity import CapacityService
from orchestrator.services.vms.driver_answers import AskedDrivers
from orchestrator.services.vms.moves import MoveService
from orchestrator.store.database import Store
from tests.fakes.fake_host import FakeHosts


class Unfenced:
    """No host's power can be switched."""

    def knows(self, _host: str) -> bool:
        return False

    def power_off(self, host: str) -> str:
        raise AssertionError(f"nobody said how {host} is switched off")


def never_advanced(store: Store, clock: Clock, ids: Ids) -> tuple[MaintenanceService, DefragmentationService]:
    """Maintenances that stay as they were declared; of hosts that were never observed nothing moves."""
    index = FleetIndex(store, Overcommit())
    drivers = AskedDrivers(link=cast(HostLink, None), clock=clock)
    moves = MoveService(store=store, index=index, drivers=drivers, observe=lambda _: None)
    capacity = CapacityService(store=store, index=index, clock=clock, moves=moves)
    return MaintenanceService(
        store=store, clock=clock, ids=ids, advance=lambda: None, fencing=Unfenced()
    ), DefragmentationService(
        store=store, clock=clock, ids=ids, advance=lambda: None, moves=moves, capacity=capacity
    )  # fmt: skip


class FakeFencing:
    """Switches machines of ``hosts`` off: what runs on them ends, and they do not answer."""

    def __init__(self, hosts: FakeHosts) -> None:
        self._hosts = hosts
        self.known: set[str] = set()
        self.broken: set[str] = set()
        """Hosts whose power nobody can see."""

    def knows(self, host: str) -> bool:
        return host in self.known

    def power_off(self, host: str) -> str:
        if host in self.broken:
            raise Retryable("fence.failed", f"the power of host {host} cannot be seen")
        switch_off(self._hosts, host)
        return "off"


def switch_off(hosts: FakeHosts, host: str) -> None:
    """As a person at its switch does."""
    machine = hosts.machines[f"{host}.test"]
    machine.answers = False
    machine.domains = {name: (xml, False) for name, (xml, _) in machine.domains.items()}
