# SPDX-License-Identifier: Apache-2.0
"""A whole control plane over a real SQLite database and hosts that live in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from orchestrator.adapters.bundles.library import BundleLibrary
from orchestrator.adapters.files.opening import Readable
from orchestrator.api.use_cases import Services, Site, services_of
from orchestrator.core.vms.image import NewImage
from orchestrator.operations.context import Limits, World
from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.operations.journal import Journal
from orchestrator.operations.runner import Runner
from orchestrator.ports.clock import Clock
from orchestrator.ports.overlay import Northbound, Overlay
from orchestrator.reconcile.findings import FindingService
from orchestrator.reconcile.guests import ROUND_S, BootingGuests
from orchestrator.reconcile.leases import LeaseKeeper
from orchestrator.reconcile.reconciler import Reconciler
from orchestrator.reconcile.repairs import Pacing, Repairer
from orchestrator.services.fleet.view import Overcommit
from orchestrator.services.hosts.checks import HostInspection
from orchestrator.services.hosts.observing import HostObserver
from orchestrator.services.messages import AddHost, CreateVm, HostKey
from orchestrator.services.site_time import SiteTime
from orchestrator.services.tenancy.tenancy import tenancy
from orchestrator.store.database import Store
from tests.fakes.fake_fencing import FakeFencing
from tests.fakes.fake_guests import FakeGuests
from tests.fakes.fake_host import FakeHosts
from tests.fakes.fake_machine import FakeMachine, a100, l40s, t4
from tests.fakes.fake_world import CountedIds, FakeClock, FakeImages, FakeKeys, FakeSeeds, HeldEngine
from tests.fakes.network_engines import nat_alone
from tests.fakes.new_database import new_store
from tests.fakes.readings import Nobody
from tests.fakes.webhooks import FakeSender

KEY = b"SUyU4-1hOL-dPpaQ25Uu0ry_jSEUmU0pE_q5wWxSgkQ="
GIB = 1024**3
T4_HOST, L40S_HOST, A100_HOST = "t4", "l40s", "a100"


@dataclass(frozen=True, kw_only=True)
class ControlPlane:
    store: Store
    hosts: FakeHosts
    keys: FakeKeys
    ids: CountedIds
    image_files: FakeImages
    world: World
    engine: HeldEngine
    journal: Journal
    services: Services
    observer: HostObserver
    reconciler: Reconciler
    time: SiteTime

    @property
    def findings(self) -> FindingService:
        return self.services.findings

    def machine(self, name: str) -> FakeMachine:
        return self.hosts.machines[f"{name}.test"]

    def add_host(self, name: str, *, gpus: str = "unused") -> str:
        started = self.services.hosts.add(add_host(name, gpus=gpus))
        self.engine.drain()
        return str(started.operation)

    def look(self, host: str, *, after_s: float = 0.0) -> None:
        """One look there after so many seconds, and what it makes go on."""
        self.world.clock.sleep(after_s)
        self.reconciler.observe(host)
        self.engine.drain()

    def wait_out(self, host: str) -> None:
        """The host is away for longer than operations wait for it."""
        self.look(host)
        self.look(host, after_s=900.0)


def group_on(plane: ControlPlane, group: str, network: str = "blue") -> tuple[str, str, str, str]:
    """What rows of a group of the default tenant are called by in OVN: site, tenant, group, UUID of its network."""
    with plane.store.read() as tx:
        overlay = tx.networks.get(f"default.{network}").overlay
    assert overlay is not None
    return plane.store.site, "default", group, overlay.id


def add_host(name: str, *, gpus: str = "unused") -> AddHost:
    return AddHost(
        name=name, address=f"{name}.test", provisioning_key="key", fingerprint=f"SHA256:{name}.test", gpus=gpus
    )


def create_vm(name: str = "train", *, profile: str = "GRID T4-2Q", start: bool = True) -> CreateVm:
    return CreateVm(
        name=name,
        tenant="default",
        profile=profile,
        image="guest",
        vcpus=1,
        memory_mib=256,
        disk_bytes=GIB,
        user_data="#cloud-config\npassword: planted-secret\n",
        start=start,
    )


def scan(address: str, port: int) -> HostKey:
    assert 1 <= port <= 65535
    return HostKey(type="ssh-ed25519", key="AAAA", fingerprint=f"SHA256:{address}")


def due_before(store: Store, operation_id: str) -> list[str]:
    with store.read() as tx:
        return [one.operation for one in tx.operations.due([operation_id]) if one.operation != operation_id]


def wait_for_guests(engine: HeldEngine, guests: BootingGuests, clock: Clock) -> None:
    """Until one of them lets its operation go on, or none boots."""
    while not engine.waiting and (waiting := guests.waiting()):
        clock.sleep(ROUND_S)
        for host, ones in waiting.items():
            guests.ask(host, ones)


@contextmanager
def plane_with(state: Path, *hosts: str, url: str | None = None) -> Iterator[ControlPlane]:
    """A control plane to which these hosts were added; closed in the end."""
    made = control_plane(state, url=url)
    for name in hosts:
        made.add_host(name)
    yield made
    made.store.close()


def control_plane(
    state: Path, *, journal: type[Journal] = Journal, hosts: FakeHosts | None = None, url: str | None = None,
    northbound: Northbound | None = None,
    overlay: Overlay | None = None,
) -> ControlPlane:  # fmt: skip
    """Hosts that are not yet added: ``t4`` (mdev), ``l40s`` (vendor VFIO) and ``a100`` (MIG as well); an image, the
    default network.

    ``url``: of the database; without it SQLite in ``state``."""
    store = Store(url, key=KEY, new_site="site") if url else new_store(state / "vgpuctl.sqlite", KEY)
    fake = hosts or FakeHosts(
        {
            f"{T4_HOST}.test": FakeMachine(machine_id="m1", gpus=[t4(), t4("0000:42:00.0")]),
            f"{L40S_HOST}.test": FakeMachine(machine_id="m2", gpus=[l40s(), l40s("0000:82:00.0")]),
            f"{A100_HOST}.test": FakeMachine(machine_id="m3", gpus=[a100()]),
        }
    )
    keys, ids, images = FakeKeys(), CountedIds(), FakeImages()
    world = World(
        store=store,
        link=fake,
        configurator=fake,
        guests=FakeGuests(fake),
        clock=FakeClock(),
        ids=ids,
        seeds=FakeSeeds(),
        images=images,
        bundles=BundleLibrary(state / "driver-bundles", Readable(never_below=state)),
        keys=keys,
        northbound=northbound,
        fencing=FakeFencing(fake),
        limits=Limits(),
    )
    kept = journal(store, world.clock)
    runner = Runner(world, kept, DEFINITIONS)
    engine = HeldEngine(runner.run)
    guests = BootingGuests(store, fake, world.clock, engine, limit_s=world.limits.guest_seen)
    engine.due_before = partial(due_before, store)
    engine.idle = partial(wait_for_guests, engine, guests, world.clock)
    observer = HostObserver(store=store, link=fake, clock=world.clock)
    repairer = Repairer(store=store, engine=engine, clock=world.clock, ids=ids, pacing=Pacing(world.clock))
    time = SiteTime(store, world.clock, ask_database=False)
    leases = LeaseKeeper(store=store, engine=engine, clock=world.clock, ids=ids, time=time)
    reconciler = Reconciler(
        store=store, observer=observer, repairer=repairer, leases=leases, clock=world.clock, at_once=2
    )
    people = tenancy(store, world.clock, owner_uid=os.geteuid(), key=KEY)
    site = Site(
        key=KEY, tenancy=people, overcommit=Overcommit(), sender=FakeSender(), others=Nobody(),
        engines=replace(nat_alone(world.clock), northbound=northbound, overlay=overlay),
    )  # fmt: skip
    services = services_of(world, engine, reconciler, HostInspection(scan, fake), site)
    if not services.images.list():
        services.images.add(NewImage(name="guest", source="/guest.qcow2"))
    return ControlPlane(
        store=store,
        hosts=fake,
        keys=keys,
        ids=ids,
        image_files=images,
        world=world,
        engine=engine,
        journal=kept,
        services=services,
        observer=observer,
        reconciler=reconciler,
        time=time,
    )
