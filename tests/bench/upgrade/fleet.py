# SPDX-License-Identifier: Apache-2.0
"""A fleet in memory whose operations take virtual time: the database, the keeper, the steps and the agents are real."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from orchestrator.api.use_cases import keeper_of
from orchestrator.catalogue.catalogue import shipped
from orchestrator.core.drivers.bundle import BundleContent, DriverBundle
from orchestrator.core.hosts.host import Host
from orchestrator.core.maintenance.maintenance import is_out
from orchestrator.operations.context import World
from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.operations.journal import Journal
from orchestrator.operations.runner import Runner
from orchestrator.reconcile.maintenances import MaintenanceKeeper
from orchestrator.services.drivers.upgrades import DriverUpgradeService
from orchestrator.services.fleet.index import FleetIndex
from orchestrator.services.fleet.view import Overcommit
from orchestrator.services.hosts.observing import HostObserver
from orchestrator.services.vms.driver_answers import AskedDrivers
from orchestrator.services.vms.moves import MoveService
from orchestrator.services.vms.moving import VmMoves
from orchestrator.services.vms.planning import Planner
from orchestrator.sim.fleet import SimulatedFleet, enrolled, new_machine
from orchestrator.sim.guests import SimulatedGuests
from orchestrator.sim.hardware import gpu_kind
from orchestrator.sim.in_memory import InMemoryImages, record_enrolled
from orchestrator.sim.machine import SimulatedMachine
from orchestrator.sim.machine_link import MachineLink
from orchestrator.sim.observing import snapshot_of
from orchestrator.store.database import Store
from tests.fakes.fake_fencing import Unfenced
from tests.fakes.fake_world import CountedIds
from tests.fakes.new_database import new_store
from tests.simulated.small_ports import InMemoryBundles, InMemoryKeys, InMemorySeeds

T = TypeVar("T")

OLD, NEW = "580.65.05", "580.95.02"
SWAP_S = 600.0
JITTER = 0.05
"""Hosts are not all alike: a swap takes so much longer or shorter, at most, as a part of it."""


@dataclass
class VirtualClock:
    """Moves when the fleet says so."""

    time: float = 0.0

    def now(self) -> float:
        return 1_800_000_000.0 + self.time

    def monotonic(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


class _Link(MachineLink):
    """No way between: every call arrives at once."""

    def __init__(self, fleet: SimulatedFleet, site: str) -> None:
        super().__init__(site=site)
        self._fleet = fleet

    def _call(self, host: Host, name: str, work: Callable[[SimulatedMachine], T]) -> T:
        return work(self._fleet.of(host))


@dataclass
class VirtualEngine:
    """Operations end one after the other, each so long after it was begun as it was drawn to take."""

    clock: VirtualClock
    run: Callable[[str], None]
    random: random.Random
    ends: list[tuple[float, str]] = field(default_factory=list)

    def submit(self, operation_id: str) -> None:
        took = SWAP_S * (1 + self.random.uniform(-JITTER, JITTER))
        heapq.heappush(self.ends, (self.clock.time + took, operation_id))

    def recover(self) -> int:
        return 0

    def stop(self) -> None:
        """Nothing runs by itself."""

    def next(self) -> bool:
        """The next operation ends; False: there is none."""
        if not self.ends:
            return False
        self.clock.time, operation = heapq.heappop(self.ends)
        self.run(operation)
        return True


@dataclass(frozen=True, kw_only=True)
class UpgradedFleet:
    store: Store
    clock: VirtualClock
    engine: VirtualEngine
    keeper: MaintenanceKeeper
    service: DriverUpgradeService

    def most_out(self) -> int:
        """Hosts that serve nobody now."""
        with self.store.read() as tx:
            turns = [turn for maintenance in tx.maintenances.active() for turn in maintenance.hosts]
            busy = {host.name for host in tx.hosts.list() if host.state != "ready"}
        return len(busy | {one.host for one in turns if is_out(one)})


@contextmanager
def fleet_of(hosts: int, directory: Path) -> Iterator[UpgradedFleet]:
    """So many equal hosts with the old driver, and both bundles."""
    store = new_store(directory / "vgpuctl.sqlite", b"SUyU4-1hOL-dPpaQ25Uu0ry_jSEUmU0pE_q5wWxSgkQ=")
    fleet, kind, clock = SimulatedFleet(), gpu_kind(shipped(), "Tesla T4"), VirtualClock()
    for index in range(hosts):
        machine = enrolled(new_machine(index, [kind]), store.site)
        machine.driver_version = OLD
        fleet.add(f"h{index}.test", machine)
    record_enrolled(
        store, ((f"h{at}", f"h{at}.test", snapshot_of(one)) for at, one in enumerate(fleet.machines.values())), 0.0
    )
    with store.begin() as tx:
        for at, version in enumerate((OLD, NEW)):
            content = BundleContent(
                kind="vgpu_host", package="NVIDIA", version=version, architecture="x86_64", format="run"
            )
            tx.driver_bundles.add(
                DriverBundle(sha256=f"{at}" * 64, content=content, size_bytes=1, key_id="K", comment="", created_at=0.0)
            )
    link, ids = _Link(fleet, store.site), CountedIds()
    world = World(
        store=store, link=link, configurator=link, guests=SimulatedGuests(), clock=clock, ids=ids,
        seeds=InMemorySeeds(), images=InMemoryImages(), bundles=InMemoryBundles(), keys=InMemoryKeys(),
        fencing=Unfenced(),
    )  # fmt: skip
    runner = Runner(world, Journal(store, clock), DEFINITIONS)
    engine = VirtualEngine(clock, runner.run, random.Random(1))
    planner = Planner(index=FleetIndex(store, Overcommit()), clock=clock, ids=ids)
    asked = MoveService(
        store=store, index=planner.index, drivers=AskedDrivers(link=world.link, clock=world.clock),
        observe=HostObserver(store=store, link=link, clock=clock).observe,
    )  # fmt: skip
    moves = VmMoves(store=store, engine=engine, planner=planner, moves=asked)
    keeper = keeper_of(world, engine, moves)
    service = DriverUpgradeService(store=store, clock=clock, ids=ids, advance=keeper.round)
    yield UpgradedFleet(store=store, clock=clock, engine=engine, keeper=keeper, service=service)
    store.close()
