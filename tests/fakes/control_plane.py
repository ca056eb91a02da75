# SPDX-License-Identifier: Apache-2.0
"""A whole control plane over a real SQLite database and hosts that live in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.adapters.bundles.library import BundleLibrary
from orchestrator.adapters.files.opening import Readable
from orchestrator.adapters.store.database import SqlStore
from orchestrator.core.image import NewImage
from orchestrator.operations.context import Limits, World
from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.operations.journal import Journal
from orchestrator.operations.runner import Runner
from orchestrator.reconcile.driver_upgrades import DriverUpgradeKeeper
from orchestrator.reconcile.findings import FindingService
from orchestrator.reconcile.leases import LeaseKeeper
from orchestrator.reconcile.pacing import Pacing
from orchestrator.reconcile.reconciler import Reconciler
from orchestrator.reconcile.repairs import Repairer
from orchestrator.services.adopting import AdoptionService
from orchestrator.services.driver_bundles import DriverBundleService
from orchestrator.services.driver_locks import DriverLockService
from orchestrator.services.driver_upgrades import DriverUpgradeService
from orchestrator.services.fleet_index import FleetIndex
from orchestrator.services.fleet_view import Overcommit
from orchestrator.services.gpus import GpuService
from orchestrator.services.guests import GuestService
from orchestrator.services.host_checks import HostCheckService
from orchestrator.services.host_provisioning import ProvisioningService
from orchestrator.services.hosts import HostService
from orchestrator.services.images import ImageService
from orchestrator.services.messages import AddHost, CreateVm, HostKey
from orchestrator.services.mig_layouts import MigLayoutService
from orchestrator.services.networks import NetworkService
from orchestrator.services.observing import HostObserver
from orchestrator.services.offerings import OfferingService
from orchestrator.services.operations import OperationService
from orchestrator.services.planning import Planner
from orchestrator.services.profiles import ProfileService
from orchestrator.services.tenancy.tenancy import Tenancy, tenancy
from orchestrator.services.vms import VmService
from tests.fakes.fake_guests import FakeGuests
from tests.fakes.fake_host import FakeHosts
from tests.fakes.fake_machine import FakeMachine, a100, l40s, t4
from tests.fakes.fake_world import CountedIds, FakeClock, FakeImages, FakeKeys, FakeSeeds, HeldEngine
from tests.fakes.new_database import new_store

KEY = b"SUyU4-1hOL-dPpaQ25Uu0ry_jSEUmU0pE_q5wWxSgkQ="
GIB = 1024**3
T4_HOST, L40S_HOST, A100_HOST = "t4", "l40s", "a100"


@dataclass(frozen=True, kw_only=True)
class Services:
    vms: VmService
    guests: GuestService
    adoption: AdoptionService
    hosts: HostService
    host_checks: HostCheckService
    provisioning: ProvisioningService
    gpus: GpuService
    profiles: ProfileService
    images: ImageService
    offerings: OfferingService
    driver_bundles: DriverBundleService
    driver_locks: DriverLockService
    driver_upgrades: DriverUpgradeService
    mig_layouts: MigLayoutService
    networks: NetworkService
    operations: OperationService
    findings: FindingService
    tenancy: Tenancy


@dataclass(frozen=True, kw_only=True)
class ControlPlane:
    store: SqlStore
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


@contextmanager
def plane_with(state: Path, *hosts: str) -> Iterator[ControlPlane]:
    """A control plane to which these hosts were added; closed in the end."""
    made = control_plane(state)
    for name in hosts:
        made.add_host(name)
    yield made
    made.store.close()


def control_plane(
    state: Path, *, journal: type[Journal] = Journal, hosts: FakeHosts | None = None, url: str | None = None
) -> ControlPlane:
    """Hosts that are not yet added: ``t4`` (mdev), ``l40s`` (vendor VFIO) and ``a100`` (MIG as well); an image, the
    default network.

    ``url``: of the database; without it SQLite in ``state``."""
    store = SqlStore(url, key=KEY, new_site="site") if url else new_store(state / "vgpuctl.sqlite", KEY)
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
        limits=Limits(),
    )
    kept = journal(store, world.clock)
    runner = Runner(world, kept, DEFINITIONS)
    engine = HeldEngine(runner.run)
    observer = HostObserver(store=store, link=fake, clock=world.clock)
    repairer = Repairer(store=store, engine=engine, clock=world.clock, ids=ids, pacing=Pacing(world.clock))
    leases = LeaseKeeper(store=store, engine=engine, clock=world.clock, ids=ids)
    reconciler = Reconciler(
        store=store, observer=observer, repairer=repairer, leases=leases, clock=world.clock, at_once=2
    )
    services = _services(world, engine, reconciler, fake)
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
    )


def _services(world: World, engine: HeldEngine, reconciler: Reconciler, inspector: FakeHosts) -> Services:
    store, clock, ids = world.store, world.clock, world.ids

    keeper = DriverUpgradeKeeper(store=store, engine=engine, clock=clock, ids=ids)
    planner = Planner(
        index=FleetIndex(store, Overcommit()),
        clock=clock,
        ids=ids,
    )
    hosts = HostService(
        store=store,
        engine=engine,
        keys=world.keys,
        clock=clock,
        ids=ids,
        scan_key=scan,
        overcommit=planner.index.overcommit,
    )
    networks = NetworkService(store=store, clock=clock)
    return Services(
        vms=VmService(store=store, engine=engine, link=world.link, planner=planner, networks=networks),
        guests=GuestService(store=store, engine=engine, clock=clock, ids=ids),
        adoption=AdoptionService(store=store, engine=engine, overcommit=planner.index.overcommit, clock=clock, ids=ids),
        hosts=hosts,
        host_checks=HostCheckService(store=store, hosts=hosts, inspector=inspector),
        provisioning=ProvisioningService(store=store, engine=engine, clock=clock, ids=ids),
        gpus=GpuService(store=store),
        profiles=ProfileService(index=planner.index),
        images=ImageService(store=store, files=world.images, clock=clock),
        offerings=OfferingService(store=store, index=planner.index, clock=clock),
        driver_locks=DriverLockService(store=store, clock=clock),
        driver_upgrades=DriverUpgradeService(store=store, clock=clock, ids=ids, advance=keeper.round),
        driver_bundles=DriverBundleService(store=store, files=world.bundles, clock=clock),
        mig_layouts=MigLayoutService(store=store, engine=engine, clock=clock, ids=ids),
        networks=networks,
        operations=OperationService(world=world, engine=engine),
        findings=FindingService(store=store, reconciler=reconciler, repairer=reconciler.repairer),
        tenancy=tenancy(store, clock, owner_uid=os.geteuid(), key=KEY),
    )
