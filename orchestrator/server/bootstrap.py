# SPDX-License-Identifier: Apache-2.0
"""Puts the control plane together: the only place that knows which adapter stands behind a port."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orchestrator.adapters.ansible.ssh_proxy import tcp_stream
from orchestrator.adapters.bundles.library import BundleLibrary
from orchestrator.adapters.controllers.peer_auth import announce_address, credential
from orchestrator.adapters.controllers.readings import ReadingsElsewhere
from orchestrator.adapters.engine.durable import DurableEngine
from orchestrator.adapters.engine.importing import import_later
from orchestrator.adapters.engine.live_controllers import LiveControllers, process_name
from orchestrator.adapters.engine.places import Bounds
from orchestrator.adapters.engine.timer import Timer
from orchestrator.adapters.fencing.agents import FenceAgents
from orchestrator.adapters.seed.nocloud import NoCloudSeeds
from orchestrator.adapters.state.clock import RandomIds, SystemClock
from orchestrator.adapters.state.directory import AuditHead, ExecutorLock, OwnFiles, controller_name
from orchestrator.adapters.state.guest_keys import GuestKeys
from orchestrator.adapters.state.keys import database_key, settle_site_key
from orchestrator.adapters.webhooks.sender import HttpsSender, trusted
from orchestrator.api.use_cases import Services, Site, keeper_of, services_of
from orchestrator.core.controller import turn_of
from orchestrator.core.errors import Conflict, InvalidInput, VgpuctlError
from orchestrator.core.vms.lease import DAY_S
from orchestrator.operations.context import Limits, World
from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.operations.journal import Journal
from orchestrator.operations.runner import Runner
from orchestrator.ports.clock import Clock
from orchestrator.ports.engine import Engine
from orchestrator.ports.identity import Identities
from orchestrator.ports.timers import TimerHealth
from orchestrator.reconcile.backups import BackupKeeper
from orchestrator.reconcile.dead_hosts import DeadHosts
from orchestrator.reconcile.guests import ROUND_S, BootingGuests
from orchestrator.reconcile.ill_gpus import IllGpus
from orchestrator.reconcile.leases import LeaseKeeper
from orchestrator.reconcile.maintenances import MaintenanceKeeper
from orchestrator.reconcile.power import POWER_S, PowerKeeper
from orchestrator.reconcile.reconciler import Reconciler
from orchestrator.reconcile.repairs import Pacing, Repairer
from orchestrator.reconcile.watcher import Watcher
from orchestrator.regular_file import read_at_most
from orchestrator.server import telemetry
from orchestrator.server.known_database import KnownDatabase
from orchestrator.server.network_engines import network_engines, northbound_rounds
from orchestrator.server.reach import Reach, over_ssh, readable_files
from orchestrator.server.settings import Settings
from orchestrator.services.events import EventRetention
from orchestrator.services.fleet.view import Overcommit
from orchestrator.services.hosts.checks import HostInspection
from orchestrator.services.hosts.observing import HostObserver
from orchestrator.services.network_driver import Engines
from orchestrator.services.retention import Retention
from orchestrator.services.site_time import SiteTime
from orchestrator.services.tenancy.tenancy import tenancy
from orchestrator.services.webhooks import ROUND_S as WEBHOOKS_S
from orchestrator.services.webhooks import WebhookDelivery
from orchestrator.store.database import Store
from orchestrator.store.queue_database import QueueDatabase
from orchestrator.store.sqlite.backup import url_of

if TYPE_CHECKING:
    from orchestrator.adapters.engine.work_queue import WorkQueue

_DATABASE = "vgpuctl.sqlite"
IN_MEMORY_SITE = "00000000-0000-4000-8000-"
"""How the site id of a database begins whose hosts are simulated: no such database is ever taken for a real one."""


@dataclass(frozen=True, kw_only=True)
class App:
    """A running control plane."""

    services: Services
    engine: DurableEngine
    store: Store
    living: LiveControllers
    rounds: tuple[Timer, ...]
    guests: BootingGuests
    webhooks: WebhookDelivery
    reach: Reach
    lock: ExecutorLock
    reconciler: Reconciler
    watcher: Watcher
    files: OwnFiles
    time: SiteTime
    database: KnownDatabase

    def check_own(self) -> None:
        """Whether state directory and database are still the ones that it began with. If not, another server may act
        on the same hosts: this one must do nothing more.

        :raises Conflict: ``serve.state_gone``, ``store.restored``, ``store.schema_changed``
        """
        self.files.check()
        self.database.check(rolled_back=self.engine.database_rolled_back)

    def timers(self) -> tuple[TimerHealth, ...]:
        """Everything that is done again and again here."""
        return (
            *(health for timer in self.rounds for health in timer.health()),
            self.webhooks.health(),
            self.engine.health(),
            self.time.health(),
        )

    def close(self) -> int:
        """Let running steps end and be journalled, then let go of everything. How many steps have not ended, because
        their hosts hang: then nothing was taken from under them, and the process has to end at once.

        A running play is minutes long, so it is ended instead: running it again changes nothing."""
        for timer in self.rounds:
            timer.stop()
        self.webhooks.close()
        self.guests.close()
        self.watcher.close()
        self.reconciler.close()
        self.reach.leave()
        if left := self.engine.stop():
            return left
        self.reach.close()
        with suppress(VgpuctlError):  # the database is away: what was seen last stays
            self.database.round()
        self.store.close()
        self.lock.release()
        return 0


def build(
    settings: Settings, reach_hosts: Callable[[Settings, Store], Reach] = over_ssh, *, site_prefix: str = ""
) -> App:
    """Open the state, take up what was left unfinished, begin to observe the hosts.

    ``site_prefix``: how the site id of such a database begins.

    :raises Conflict: ``serve.already_running``, ``store.newer_schema``, ``serve.real_state``, ``serve.paper_state``,
        ``serve.other_key``, ``store.restored``
    """
    telemetry.configure()
    secrets = settings.state / "secrets"
    secrets.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = ExecutorLock(settings.state / "executor.lock")
    key_file = secrets / "database_key"
    drawn = not key_file.exists()
    key = database_key(key_file)
    store = _store(settings, key, site_prefix)
    settle_site_key(store, key_file, drawn=drawn)
    database = KnownDatabase(settings.state, store)
    reach = reach_hosts(settings, store)
    name = process_name(controller_name(settings.state))
    living = LiveControllers(store, name, alone=settings.database_server is None)
    engines = network_engines(settings, key, SystemClock())
    own_name = "" if settings.database_server is None else living.name
    world = replace(_world(settings, store, reach, key, own_name), northbound=engines.northbound)
    time = SiteTime(store, world.clock)
    keepers: list[tuple[MaintenanceKeeper, Timer]] = []  # once there is one

    def go_on() -> None:
        """When an operation has ended, or a host or VM is otherwise: who tells of it does not wait until VMs move."""
        for keeper, rounds in keepers:
            if keeper.advance():
                rounds.soon()

    observer = HostObserver(store=store, link=world.link, clock=world.clock, controller=world.controller, news=go_on)
    runner = Runner(world, Journal(store, world.clock), DEFINITIONS)
    reconcilers: list[tuple[Reconciler, Timer]] = []  # once there is one, before anything runs

    def afterwards(host: str, subject: str) -> None:
        for reconciler, rounds in reconcilers:
            if observer.is_untrue(host, subject):
                reconciler.observe_soon(host)  # not here: a host that does not answer would hold a worker
            if observer.is_pool(subject):
                rounds.soon()
        go_on()

    engine = _engine(settings, store, runner, living, afterwards)
    reconciler = reconciler_of(settings, world, engine, observer, time)
    inspection = HostInspection(reach.scan_key, reach.inspector, reach.own_agent)
    site = replace(_site(settings, world, key, engines), go_on=go_on)
    services = services_of(world, engine, reconciler, inspection, site)
    keeper = keeper_of(world, engine, services.moving)
    maintenance_timer = Timer({"maintenances": keeper.round}, settings.refresh_seconds)
    keepers.append((keeper, maintenance_timer))
    if settings.database_server is not None:
        announce_address(
            store, controller_name(settings.state), listen=settings.listen, advertise=settings.advertise,
            certificate=settings.tls_cert, shown=credential(secrets / "controller_credential"),
        )  # fmt: skip
    reach.when_lost(reconciler.observe_soon)
    watcher = Watcher(
        store, world.link, reconciler.observe_soon, services.readings.kept,
        most=settings.hosts_watched, turn=lambda host: turn_of(host, living.name, living.living),
    )  # fmt: skip
    after_s, at_most = settings.evacuate_after_seconds, settings.evacuate_at_most
    dead = DeadHosts(store=store, maintenances=services.maintenances, after_s=after_s, at_most=at_most)
    retention = Retention(store=store, clock=world.clock, time=time, days=settings.operations_kept_days)
    events = EventRetention(store=store, time=time, most=settings.events_kept, days=settings.events_kept_days)
    leads = partial(getattr, living, "leads")
    rounds: dict[str, Callable[[], object]] = {
        "clock": time.look,
        "fleet": services.capacity.refresh,
        "watch": watcher.round,
        "observe": partial(reconciler.round, over_s=settings.refresh_seconds / 2),
        **northbound_rounds(engines, store, world.clock, lambda: living.leads),
        "dead hosts": dead.round,
        "backups": BackupKeeper(backups=services.backups, time=time, leads=lambda: living.leads).round,
        "ill GPUs": IllGpus(store, services.maintenances, services.gpu_cards, settings.gpus_reset_a_day, leads).round,
        "retention": retention.round,
        "events": events.round,
        "audit": services.tenancy.audit.seal,
        "known database": database.round,
        **reach.rounds,
    }
    guests = BootingGuests(store, world.link, world.clock, engine, limit_s=world.limits.guest_seen)
    webhooks = WebhookDelivery(store=store, clock=world.clock, events=services.events, sender=site.sender, leads=leads)
    power = PowerKeeper(store, world.link.perform, services.power.drawn, world.clock, leads)
    timers = (
        Timer(rounds, settings.refresh_seconds),
        maintenance_timer,
        Timer({"booting guests": guests.round}, ROUND_S),
        Timer({"webhooks": webhooks.round}, WEBHOOKS_S),
        Timer({"power": power.round}, POWER_S),
    )
    reconcilers.append((reconciler, timers[0]))
    engine.recover()
    for timer in timers:
        timer.start()
    return App(
        services=services, engine=engine, store=store, living=living, rounds=timers, guests=guests,
        webhooks=webhooks, reach=reach, lock=lock, reconciler=reconciler, watcher=watcher, time=time, database=database,
        files=OwnFiles(settings.state, ("executor.lock", *([] if settings.database_url else [_DATABASE]))),
    )  # fmt: skip


def _store(settings: Settings, key: bytes, site_prefix: str) -> Store:
    file = settings.state / _DATABASE
    file.touch(mode=0o600)
    site = site_prefix + RandomIds().new_uuid()[len(site_prefix) :]
    store = Store(settings.database_url or url_of(file), key=key, new_site=site)
    if store.site.startswith(IN_MEMORY_SITE) != (site_prefix == IN_MEMORY_SITE) and not store.rename_unused(site):
        store.close()
        raise _of_the_other_kind(settings.state, in_memory=site_prefix != IN_MEMORY_SITE)
    return store


def _of_the_other_kind(state: Path, *, in_memory: bool) -> Conflict:
    if in_memory:
        return Conflict(
            "serve.paper_state",
            f"the hosts of {state} are simulated",
            hint="start it with 'vgpuctl serve --simulate FLEET', or set VGPUCTL_STATE to another directory",
        )
    return Conflict(
        "serve.real_state",
        f"{state} serves real hosts, which simulated ones must not be mixed with",
        hint="set VGPUCTL_STATE to another directory",
    )


def _engine(
    settings: Settings, store: Store, runner: Runner, living: LiveControllers, afterwards: Callable[[str, str], None]
) -> DurableEngine:
    server = settings.database_server
    queue = settings.state / "queue.sqlite"
    bounds = Bounds(workers=settings.workers, per_host=settings.operations_per_host)
    import_later("orchestrator.adapters.engine.work_queue")

    def open_queue(run: Callable[[str], None]) -> WorkQueue:
        from orchestrator.adapters.engine.work_queue import WorkQueue  # slow to import: not before it serves

        queue.touch(mode=0o600)
        return WorkQueue(QueueDatabase(server or url_of(queue)), living.name, bounds, run)

    return DurableEngine(store, runner, bounds=bounds, open_queue=open_queue, living=living, afterwards=afterwards)


def _world(settings: Settings, store: Store, reach: Reach, key: bytes, controller: str) -> World:
    return World(
        store=store,
        link=reach.link,
        configurator=reach.configurator,
        clock=SystemClock(),
        ids=RandomIds(),
        seeds=NoCloudSeeds(GuestKeys(key, SystemClock()).authority),
        guests=reach.guests,
        images=reach.images,
        bundles=BundleLibrary(settings.state / "driver-bundles", readable_files(settings)),
        keys=reach.keys,
        fencing=FenceAgents(directory=settings.state / "fencing"),
        limits=Limits(
            guest_seen=settings.guest_seen_seconds,
            shutdown_grace=settings.shutdown_grace_seconds,
            gpu_trial=settings.gpu_trial_seconds,
        ),
        controller=controller,
    )


def _site(settings: Settings, world: World, key: bytes, engines: Engines) -> Site:
    overcommit = Overcommit(
        vcpus=settings.vcpu_overcommit,
        memory=settings.memory_overcommit,
        memory_reserve_mib=settings.memory_reserve_mib,
        disk=settings.disk_overcommit,
    )
    tenants = tenancy(
        world.store,
        world.clock,
        owner_uid=os.geteuid(),
        key=key,
        identities=_identities(settings, world.clock),
        noted=AuditHead(settings.state),
    )
    if (days := settings.admin_token_max_days) is not None:
        tenants = replace(tenants, tokens=replace(tenants.tokens, max_administering_s=days * DAY_S))
    trust = trusted(settings.webhook_ca_file)
    sender = HttpsSender(trust=trust, allowed=settings.webhook_networks)
    shown = credential(settings.state / "secrets" / "controller_credential")
    others = ReadingsElsewhere(world.store, controller_name(settings.state), shown)
    return Site(
        key=key, tenancy=tenants, overcommit=overcommit, sender=sender, others=others, connect=tcp_stream,
        tenant_subnets=settings.tenant_subnets, engines=engines,
        hand_back_s=settings.hand_back_days * 86400,
    )  # fmt: skip


def _identities(settings: Settings, clock: Clock) -> Identities | None:
    """:raises InvalidInput: ``settings.invalid``, ``login.issuer_invalid``"""
    if settings.oidc_issuer is None:
        return None
    if settings.oidc_client_id is None:
        raise InvalidInput("settings.invalid", "oidc_issuer is set and oidc_client_id is not", hint="set both or none")
    from orchestrator.oidc.identities import OidcIdentities, Strength  # few servers need it, and it is slow to import
    from orchestrator.oidc.provider import Provider, check_address

    check_address(settings.oidc_issuer)
    provider = Provider(issuer=settings.oidc_issuer, ca_file=settings.oidc_ca_file)
    strength = Strength(acr=_words(settings.oidc_required_acr), amr=_words(settings.oidc_required_amr))
    secret = settings.oidc_client_secret_file
    return OidcIdentities(
        provider,
        settings.oidc_client_id,
        settings.oidc_groups_claim,
        clock,
        strength,
        client_secret=None if secret is None else _secret_in(secret),
    )


_MAX_SECRET_BYTES: Final = 4096


def _secret_in(file: Path) -> str:
    """:raises InvalidInput: ``settings.invalid``"""
    try:
        text = (read_at_most(file, _MAX_SECRET_BYTES) or b"").decode().strip()
    except (OSError, ValueError):
        text = ""
    if not text:
        raise InvalidInput(
            "settings.invalid",
            f"setting oidc_client_secret_file: no secret can be read from {ascii(str(file))[1:-1]}",
            hint="one line of text that the server's user can read",
        )
    return text


def _words(given: str | tuple[str, ...]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else given


def reconciler_of(
    settings: Settings, world: World, engine: Engine, observer: HostObserver, time: SiteTime
) -> Reconciler:
    """What observes the hosts of one world and repairs what is safe."""
    repairer = Repairer(
        store=world.store, engine=engine, clock=world.clock, ids=world.ids, policy=settings.auto_repair,
        pacing=Pacing(world.clock, per_hour=settings.auto_repairs_per_hour),
    )  # fmt: skip
    return Reconciler(
        store=world.store,
        observer=observer,
        repairer=repairer,
        leases=LeaseKeeper(store=world.store, engine=engine, clock=world.clock, ids=world.ids, time=time),
        clock=world.clock,
        at_once=settings.hosts_at_once,
    )
