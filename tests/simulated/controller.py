# SPDX-License-Identifier: Apache-2.0
"""One controller's process: the real services, runner and store over simulated hosts, time and threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from orchestrator.api.use_cases import Services, Site, keeper_of, services_of
from orchestrator.operations.context import World
from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.operations.journal import Journal
from orchestrator.operations.runner import Runner
from orchestrator.operations.step import Definition
from orchestrator.reconcile.guests import ROUND_S, BootingGuests
from orchestrator.reconcile.maintenances import MaintenanceKeeper
from orchestrator.reconcile.reconciler import Reconciler
from orchestrator.server.bootstrap import reconciler_of
from orchestrator.server.settings import Settings
from orchestrator.services.fleet.view import Overcommit
from orchestrator.services.hosts.checks import HostInspection
from orchestrator.services.hosts.observing import HostObserver
from orchestrator.services.retention import Retention
from orchestrator.services.site_time import SiteTime
from orchestrator.services.tenancy.tenancy import tenancy
from orchestrator.sim.guests import SimulatedGuests
from orchestrator.sim.in_memory import InMemoryImages, scan
from orchestrator.store.database import Store
from tests.fakes.fake_fencing import Unfenced
from tests.fakes.network_engines import nat_alone
from tests.fakes.readings import Nobody
from tests.fakes.webhooks import FakeSender
from tests.simulated.engine import SimEngine
from tests.simulated.link import SimLink
from tests.simulated.network import FaultyFleet
from tests.simulated.schedule import Process, Schedule
from tests.simulated.small_ports import (
    InMemoryBundles,
    InMemoryKeys,
    InMemorySeeds,
    SeededIds,
    SharedStore,
    VirtualClock,
)

_KEY = bytes(32)
"""Of a database without secrets."""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What all controllers of a run share. ``definitions`` and ``fenced`` can be broken on purpose."""

    schedule: Schedule
    fleet: FaultyFleet
    store: Store
    on_change: Callable[[str], None]
    """Called with the address of a host after each request that reached it."""
    definitions: Mapping[str, Definition] = field(default_factory=lambda: DEFINITIONS)
    fenced: bool = True


@dataclass(frozen=True, kw_only=True)
class Controller:
    """Alive from :func:`start` until its process is killed."""

    process: Process
    clock: VirtualClock
    engine: SimEngine
    services: Services
    reconciler: Reconciler
    guests: GuestRounds
    keeper: MaintenanceKeeper
    retention: Retention
    time: SiteTime


class GuestRounds:
    """Asked for guests that boot, for as long as there are any."""

    def __init__(self, schedule: Schedule, process: Process, clock: VirtualClock, guests: BootingGuests) -> None:
        self._schedule = schedule
        self._process = process
        self._clock = clock
        self._guests = guests
        self._going_on = False

    def begin(self) -> None:
        """Unless they have begun."""
        if not self._going_on:
            self._going_on = True
            self._schedule.spawn(self._process, "guests", self._go_on)

    def _go_on(self) -> None:
        while waiting := self._guests.waiting():
            self._clock.sleep(ROUND_S)
            for host, guests in sorted(waiting.items()):
                self._guests.ask(host, guests)
        self._going_on = False


def start(around: Surroundings, name: str) -> Controller:
    """A process that begins now, in front of whatever the database holds."""
    schedule, process = around.schedule, Process(name)
    store, clock = SharedStore(around.store, schedule), VirtualClock(schedule)
    link = SimLink(schedule, around.fleet, site=store.site, on_change=around.on_change, fenced=around.fenced)
    world = World(
        store=store,
        link=link,
        configurator=link,
        guests=SimulatedGuests(),
        clock=clock,
        ids=SeededIds(schedule),
        seeds=InMemorySeeds(),
        images=InMemoryImages(),
        bundles=InMemoryBundles(),
        keys=InMemoryKeys(),
        fencing=Unfenced(),
    )
    observer = HostObserver(store=store, link=link, clock=clock)
    runner = Runner(world, Journal(store, clock), around.definitions)

    def afterwards(host: str, subject: str) -> None:
        if observer.is_untrue(host, subject):
            observer.observe(host)
        guests.begin()
        keeper.round()

    engine = SimEngine(schedule, process, store, runner, afterwards)
    booting = BootingGuests(store, link, clock, engine, limit_s=world.limits.guest_seen)
    guests = GuestRounds(schedule, process, clock, booting)
    # its lock is held over a transaction, so no other fiber may come first there; and no database's clock is virtual
    settings, time = Settings.model_construct(), SiteTime(around.store, clock, ask_database=False)
    reconciler = reconciler_of(settings, world, engine, observer, time)
    people = tenancy(store, clock, owner_uid=os.geteuid(), key=_KEY)
    site = Site(
        key=_KEY, tenancy=people, overcommit=Overcommit(), sender=FakeSender(), others=Nobody(),
        engines=nat_alone(clock),
    )  # fmt: skip
    services = services_of(world, engine, reconciler, HostInspection(scan), site)
    keeper = keeper_of(world, engine, services.moving)
    return Controller(
        process=process,
        clock=clock,
        engine=engine,
        services=services,
        reconciler=reconciler,
        guests=guests,
        keeper=keeper,
        retention=Retention(store=store, clock=clock, time=time, days=1.0),
        time=time,
    )
