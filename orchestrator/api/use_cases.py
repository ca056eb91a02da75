# SPDX-License-Identifier: Apache-2.0
"""Every use case over one world: what the API calls, what tests call, and what observes hosts behind them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Network

from orchestrator.core.event import EventIds
from orchestrator.core.vms.network import DEFAULT_RANGE
from orchestrator.operations.context import World
from orchestrator.ports.engine import Engine
from orchestrator.ports.host import ByteStream
from orchestrator.ports.readings import OtherControllers
from orchestrator.ports.webhooks import WebhookSender
from orchestrator.reconcile.defragmenting import Defragmenter
from orchestrator.reconcile.findings import FindingService
from orchestrator.reconcile.maintenances import MaintenanceKeeper
from orchestrator.reconcile.reconciler import Reconciler
from orchestrator.services.changes_in_ovn import ChangesInOvn
from orchestrator.services.controllers import ControllerService
from orchestrator.services.drivers.bundles import DriverBundleService
from orchestrator.services.drivers.locks import DriverLockService
from orchestrator.services.drivers.provisioning import ProvisioningService
from orchestrator.services.drivers.upgrades import DriverUpgradeService
from orchestrator.services.events import EventService
from orchestrator.services.fleet.index import FleetIndex
from orchestrator.services.fleet.view import Overcommit
from orchestrator.services.floating_addresses import FloatingAddressService
from orchestrator.services.guests.consoles import ConsoleService
from orchestrator.services.guests.guests import GuestAccessService, GuestService
from orchestrator.services.hosts.checks import HostCheckService, HostInspection
from orchestrator.services.hosts.gpu_health import GpuHealthService
from orchestrator.services.hosts.gpus import CardService, GpuService
from orchestrator.services.hosts.hosts import HostService
from orchestrator.services.hosts.mig_layouts import MigLayoutService
from orchestrator.services.hosts.power import PowerService
from orchestrator.services.images import ImageService
from orchestrator.services.maintenance.defragmenting import DefragmentationService
from orchestrator.services.maintenance.maintenances import HAND_BACK_S, MaintenanceService
from orchestrator.services.network_driver import Engines, NetworkDriverService
from orchestrator.services.network_paths import NetworkPathService
from orchestrator.services.networks import NetworkService
from orchestrator.services.offerings import OfferingService, ProfileService
from orchestrator.services.operations import OperationService
from orchestrator.services.pools import PoolService
from orchestrator.services.provider_networks import ProviderNetworkService
from orchestrator.services.readings.kept import KeptReadings
from orchestrator.services.readings.networks import NetworkReadingService
from orchestrator.services.readings.readings import ReadingService
from orchestrator.services.security_groups import SecurityGroupService
from orchestrator.services.tenancy.tenancy import Tenancy
from orchestrator.services.vms.adopting import AdoptionService
from orchestrator.services.vms.backup_policies import BackupPolicyService
from orchestrator.services.vms.backups import BackupTargets, VmBackups
from orchestrator.services.vms.capacity import CapacityService
from orchestrator.services.vms.disk_growth import DiskGrowth
from orchestrator.services.vms.disk_snapshots import VmSnapshots
from orchestrator.services.vms.driver_answers import AskedDrivers
from orchestrator.services.vms.making_way import MakingWay
from orchestrator.services.vms.moves import MoveService
from orchestrator.services.vms.moving import VmMoves
from orchestrator.services.vms.network_cards import NetworkCards
from orchestrator.services.vms.planning import Planner
from orchestrator.services.vms.resizing import VmResizing
from orchestrator.services.vms.suspending import VmSuspension
from orchestrator.services.vms.vms import VmService
from orchestrator.services.vms.volume_snapshots import VolumeSnapshots
from orchestrator.services.vms.volumes import VolumeService
from orchestrator.services.webhooks import WebhookService


@dataclass(frozen=True, kw_only=True)
class Services:
    """Every use case, as the API takes them."""

    vms: VmService
    moving: VmMoves
    resizing: VmResizing
    network_cards: NetworkCards
    suspension: VmSuspension
    disk_growth: DiskGrowth
    disk_snapshots: VmSnapshots
    backup_targets: BackupTargets
    backups: VmBackups
    backup_policies: BackupPolicyService
    guest_access: GuestAccessService
    consoles: ConsoleService
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
    maintenances: MaintenanceService
    defragmentation: DefragmentationService
    gpu_cards: CardService
    gpu_health: GpuHealthService
    power: PowerService
    mig_layouts: MigLayoutService
    networks: NetworkService
    network_driver: NetworkDriverService
    provider_networks: ProviderNetworkService
    floating_addresses: FloatingAddressService
    security_groups: SecurityGroupService
    network_paths: NetworkPathService
    volumes: VolumeService
    volume_snapshots: VolumeSnapshots
    pools: PoolService
    operations: OperationService
    capacity: CapacityService
    moves: MoveService
    findings: FindingService
    controllers: ControllerService
    readings: ReadingService
    network_readings: NetworkReadingService
    events: EventService
    webhooks: WebhookService
    tenancy: Tenancy


@dataclass(frozen=True, kw_only=True)
class Site:
    """What one site has of its own."""

    key: bytes
    """The database's ring of keys, core/tenancy/key_ring.py."""
    tenancy: Tenancy
    overcommit: Overcommit
    sender: WebhookSender
    others: OtherControllers
    engines: Engines
    tenant_subnets: IPv4Network = DEFAULT_RANGE
    hand_back_s: float = HAND_BACK_S
    connect: Callable[[str, int], ByteStream] | None = None
    """To floating addresses; None: nobody is led there from here."""
    go_on: Callable[[], object] | None = None
    """Takes maintenances on, as soon as may be; None: at once."""


def keeper_of(world: World, engine: Engine, moves: VmMoves) -> MaintenanceKeeper:
    """What takes maintenances on."""
    store, clock = world.store, world.clock
    capacity = CapacityService(store=store, index=moves.planner.index, clock=clock, moves=moves.moves)
    defragmenter = Defragmenter(store=store, clock=clock, moves=moves, capacity=capacity)
    return MaintenanceKeeper(
        store=store, engine=engine, clock=clock, ids=world.ids, moves=moves, defragmenter=defragmenter
    )  # fmt: skip


def services_of(
    world: World, engine: Engine, reconciler: Reconciler, inspection: HostInspection, site: Site
) -> Services:
    """All of them over one world."""
    overcommit = site.overcommit
    store, clock, ids = world.store, world.clock, world.ids
    index, events = FleetIndex(store, overcommit), EventService(store=store, ids=EventIds(site.key))
    kept = KeptReadings(clock)
    readings = ReadingService(store=store, kept=kept, others=site.others)
    in_ovn = ChangesInOvn(store=store, northbound=world.northbound)
    networks = NetworkService(
        store=store, clock=clock, index=index, subnets=site.tenant_subnets, ids=ids, in_ovn=in_ovn
    )
    planner, access = (
        Planner(index=index, clock=clock, ids=ids),
        GuestAccessService(store=store, link=world.link, clock=clock, connect=site.connect),
    )
    volumes = VolumeService(store=store, engine=engine, planner=planner)
    moves = MoveService(
        store=store, index=index, drivers=AskedDrivers(link=world.link, clock=clock),
        observe=reconciler.observer.observe,
    )  # fmt: skip
    capacity = CapacityService(store=store, index=index, clock=clock, moves=moves)
    moving = VmMoves(store=store, engine=engine, planner=planner, moves=moves)
    suspension = VmSuspension(store=store, engine=engine, planner=planner, moves=moves)
    advance = site.go_on or keeper_of(world, engine, moving).round
    hosts = HostService(
        store=store, engine=engine, keys=world.keys, clock=clock, ids=ids, scan_key=inspection.scan_key,
        overcommit=overcommit, own_agent=inspection.own_agent,
    )  # fmt: skip
    return Services(
        vms=VmService(
            store=store,
            engine=engine,
            planner=planner,
            making_way=MakingWay(moving=moving),
            networks=networks,
            suspension=suspension,
        ),
        moving=moving,
        network_cards=NetworkCards(store=store, engine=engine, networks=networks, clock=clock, ids=ids),
        resizing=VmResizing(store=store, engine=engine, planner=planner, moving=moving),
        suspension=suspension,
        disk_growth=DiskGrowth(store=store, engine=engine, planner=planner),
        disk_snapshots=VmSnapshots(store=store, engine=engine, planner=planner),
        backup_targets=BackupTargets(store=store, planner=planner),
        backups=VmBackups(store=store, engine=engine, planner=planner),
        backup_policies=BackupPolicyService(store=store, clock=clock, time=reconciler.leases.time),
        guest_access=access,
        consoles=ConsoleService(store=store, access=access, clock=clock),
        guests=GuestService(store=store, engine=engine, clock=clock, ids=ids),
        adoption=AdoptionService(
            store=store, link=world.link, engine=engine, overcommit=overcommit, clock=clock, ids=ids
        ),
        hosts=hosts,
        host_checks=HostCheckService(store=store, hosts=hosts, inspector=inspection.inspector),
        provisioning=ProvisioningService(
            store=store, engine=engine, clock=clock, ids=ids, ovn=site.engines.hosts, inspector=inspection.inspector
        ),
        gpus=GpuService(store=store),
        profiles=ProfileService(index=index, capacity=capacity),
        images=ImageService(store=store, files=world.images, clock=clock),
        offerings=OfferingService(store=store, index=index, clock=clock),
        driver_bundles=DriverBundleService(store=store, files=world.bundles, clock=clock),
        driver_locks=DriverLockService(store=store, clock=clock),
        driver_upgrades=DriverUpgradeService(store=store, clock=clock, ids=ids, advance=advance),
        maintenances=MaintenanceService(
            store=store, clock=clock, ids=ids, advance=advance, fencing=world.fencing, hand_back_s=site.hand_back_s
        ),
        defragmentation=DefragmentationService(
            store=store, clock=clock, ids=ids, advance=advance, moves=moves, capacity=capacity
        ),
        gpu_cards=CardService(store=store, engine=engine, clock=clock, ids=ids),
        gpu_health=GpuHealthService(store=store, clock=clock),
        power=PowerService(store=store, clock=clock, readings=readings),
        mig_layouts=MigLayoutService(store=store, engine=engine, clock=clock, ids=ids),
        networks=networks,
        network_driver=NetworkDriverService(store=store, clock=clock, engines=site.engines),
        network_paths=NetworkPathService(store=store, tracer=site.engines.tracer, overlay=site.engines.overlay),
        provider_networks=ProviderNetworkService(store=store, clock=clock, ids=ids, overlay=site.engines.overlay),
        floating_addresses=FloatingAddressService(store=store, clock=clock, ids=ids, in_ovn=in_ovn),
        security_groups=SecurityGroupService(store=store, clock=clock, in_ovn=in_ovn),
        volumes=volumes,
        volume_snapshots=VolumeSnapshots(volumes=volumes),
        pools=PoolService(store=store, engine=engine, planner=planner, observe=reconciler.observer.observe),
        operations=OperationService(world=world, engine=engine),
        capacity=capacity,
        moves=moves,
        controllers=ControllerService(store=store, clock=clock, files=world.images, kept=kept, key=site.key),
        readings=readings,
        network_readings=NetworkReadingService(readings=readings),
        findings=FindingService(store=store, reconciler=reconciler, repairer=reconciler.repairer),
        events=events,
        webhooks=WebhookService(store=store, clock=clock, ids=ids, events=events, sender=site.sender),
        tenancy=site.tenancy,
    )
