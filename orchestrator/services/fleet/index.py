# SPDX-License-Identifier: Apache-2.0
"""The fleet as one process knows it: built once, then only what has changed is read. Every question asks it."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property

from orchestrator.catalogue.gpu_tables import Tables, tables_of
from orchestrator.catalogue.profiles import Profiles, shipped_profiles
from orchestrator.core.advice.alike import KnownRooms, OneOfEach, kinds_of
from orchestrator.core.advice.outlook import lasting_reason
from orchestrator.core.advice.overview import FleetUse, RackUse, by_rack
from orchestrator.core.errors import Reason
from orchestrator.core.interpreter import loading
from orchestrator.core.labels import KEPT_FOR
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.placement.engine import PlacementEngine
from orchestrator.core.placement.views import HostView, Request
from orchestrator.core.units import MIB
from orchestrator.core.vms.claim import Claim, HostCapacity
from orchestrator.core.vms.isolation import DEFAULT_ISOLATION, Isolation
from orchestrator.core.vms.vm import Vm
from orchestrator.services.fleet.gpus import SiteRules, Viewer
from orchestrator.services.fleet.known_profiles import KnownProfiles, OfferedTypes
from orchestrator.services.fleet.view import Overcommit, Viewed, capacity_of
from orchestrator.store.database import Store
from orchestrator.store.records import HostRecord

_MANY = 1000
"""From so many hosts on it is quicker to read all."""
_SPARE_BYTES = 32 * MIB
"""What the engine may have met beside what is there now."""


@dataclass(frozen=True, kw_only=True)
class Reservation:
    """A place that was planned here and is not claimed yet: other plans of this process leave it alone."""

    vm: Vm
    claim: Claim | None
    """None: it waits until others have given their places back."""


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """The hosts at one moment; it stays true to that moment."""

    hosts: tuple[Viewed, ...]
    """By name, those that were observed at least once."""
    known: KnownProfiles
    rooms: KnownRooms

    @cached_property
    def each(self) -> OneOfEach:
        """One of each kind of them; may only be asked inside :meth:`FleetIndex.current`."""
        return OneOfEach(kinds_of((viewed.kind, viewed.view) for viewed in self.hosts), self.rooms)

    def of_tenant(self, tenant: str) -> Fleet:
        """With what that one may ask for."""
        known = self.known.of_tenants({tenant})
        return self if known is self.known else replace(self, known=known)

    @cached_property
    def views(self) -> tuple[HostView, ...]:
        return tuple(viewed.view for viewed in self.hosts)

    @cached_property
    def racks(self) -> tuple[RackUse, ...]:
        """All hosts, by rack."""
        return by_rack(viewed.host_use for viewed in self.hosts)

    @cached_property
    def vm_names(self) -> dict[str, str]:
        """VM id → its name, of those that are on these hosts."""
        return {vm.id: vm.spec.name for viewed in self.hosts for vm in viewed.seen.vms}


def _room_of(viewed: Viewed) -> Hashable:
    """The same for hosts that hold the same when nothing is on them; most of a pool are alike."""
    facts, view, host = viewed.facts, viewed.view, viewed.seen.host
    gpus = tuple((gpu.geometry.key, gpu.gpu_id in host.managed_gpus, gpu.reason_not_whole) for gpu in view.gpus)
    settings = (host.pinnable_cpus, host.vcpu_overcommit, host.memory_overcommit, host.rdma_nics)
    has = (facts.vcpus, facts.memory_mib, facts.disk_bytes, facts.nodes, facts.nics, view.facts)
    return (gpus, settings, has, view.fabric_partitions, view.whole_gpus)


class FleetIndex:
    """One per process; may be asked from many threads.

    Whatever changes the database is heard of when the next question is asked: what this process did itself, too.
    """

    def __init__(self, store: Store, overcommit: Overcommit, tables: Tables = tables_of) -> None:
        self.overcommit = overcommit
        self._store = store
        self._viewer = Viewer(overcommit=overcommit, tables=tables)
        self._lock = threading.RLock()
        self._inside = 0
        """Blocks of :meth:`current` that its one owner is in."""
        self._position = 0
        self._stamps: dict[str, int] = {}
        self._seen: dict[str, HostRecord] = {}
        self._viewed: dict[str, Viewed] = {}
        self._stale: set[str] = set()
        self._types = OfferedTypes()
        self._rules = SiteRules(apart=self.isolation_of)
        self._offerings: tuple[Offering, ...] | None = None
        self._isolations: dict[str, Isolation] = {}
        self._known = KnownProfiles(profiles=shipped_profiles(), types=frozenset())
        self._reserved: dict[str, Reservation] = {}
        self._engine = PlacementEngine()
        self._least = 0
        """Bytes of what the engine had met when it was made."""
        self._fleet: Fleet | None = None
        self._unlike: tuple[Viewed, ...] | None = None
        """One host of each kind, as :func:`_room_of` tells them apart; gone with ``_fleet``."""
        self._use = FleetUse({}, {})
        self._counted: dict[str, FleetUse] = {}
        """Of each host, as it is in that sum."""
        self._uncounted: set[str] = set()
        """Hosts that have changed since."""

    @contextmanager
    def current(self) -> Iterator[FleetIndex]:
        """Up to date, and the caller's alone until the end of the block; what is asked inside is of one moment.

        Begin a transaction inside it, never around it: whoever waits here must not hold a connection."""
        with self._lock:
            if not self._inside:
                self._read_changes()
            self._inside += 1
            try:
                yield self
            finally:
                self._inside -= 1

    @property
    def engine(self) -> PlacementEngine:
        """Whoever changes it, leaves it as it was."""
        return self._engine

    @property
    def known(self) -> KnownProfiles:
        """What may be asked for."""
        return self._known

    def fleet(self) -> Fleet:
        if self._fleet is None:
            ordered = tuple(self._viewed[name] for name in sorted(self._viewed))
            self._fleet = Fleet(hosts=ordered, known=self._known, rooms=self._viewer.rooms)
        return self._fleet

    def use(self) -> FleetUse:
        """How much of all GPUs is used."""
        if self._uncounted:
            now = {name: self._viewed[name].use for name in self._uncounted if name in self._viewed}
            gone = [self._counted.pop(name) for name in self._uncounted if name in self._counted]
            self._use = FleetUse.added((self._use, *now.values()), gone)
            self._counted |= now
            self._uncounted.clear()
        return self._use

    def host(self, name: str) -> Viewed | None:
        """None: not there, or never observed."""
        return self._viewed.get(name)

    def capacity(self, name: str) -> HostCapacity | None:
        """All that the host has for VMs. None: as :meth:`host`."""
        viewed = self.host(name)
        return None if viewed is None else capacity_of(viewed.facts, self.overcommit.of(viewed.seen.host))

    def lasting_reason(self, request: Request, *, asked: str, place: str | None) -> Reason | None:
        """Why it fits nowhere whatever goes (core/advice/outlook.py). None also while a host was not observed yet."""
        if len(self._viewed) < len(self._seen):
            return None
        if request.host is not None:
            hosts = tuple(filter(None, (self._viewed.get(request.host),)))
        else:
            hosts = self._unlike = self._unlike or tuple(
                {_room_of(viewed): viewed for viewed in self._viewed.values()}.values()
            )
        return lasting_reason(request, map(self._viewer.empty, hosts), asked=asked, place=place)

    def isolation_of(self, tenant: str) -> Isolation:
        """How far it is kept apart from others."""
        return self._isolations.get(tenant, DEFAULT_ISOLATION)

    def reserve(self, reservation: Reservation) -> None:
        """Until :meth:`release`."""
        self._reserved[reservation.vm.id] = reservation
        self._view(reservation.vm.host)

    def release(self, vm_id: str) -> None:
        """It is claimed now, or given up. Gone already is fine."""
        with self._lock:
            reservation = self._reserved.pop(vm_id, None)
            if reservation is not None:
                self._stale.add(reservation.vm.host)

    def _read_changes(self) -> None:
        """Inside the lock, so that a picture is never replaced by an older one."""
        with self._store.read() as tx:
            changes = tx.fleet.changes(self._position)
            names = {host for host, stamp in changes.stamps.items() if self._stamps.get(host) != stamp} | self._stale
            first = not self._seen and len(names) >= _MANY
            with loading() if first else nullcontext():
                rows = {row.host.name: row for row in tx.fleet.hosts(names if len(names) < _MANY else None)}
            offerings = tx.offerings.list()
            isolations = tx.policies.isolations()
        self._learn(offerings, isolations)
        with loading() if first else nullcontext():
            for name in sorted(names):
                self._keep(name, rows.get(name))
        if self._engine.fleet.size > 2 * self._least + _SPARE_BYTES:
            self._forget()
        self._position = changes.position
        self._stamps.update(changes.stamps)
        self._stale.clear()

    def _forget(self) -> None:
        """All that was met and is no more: GPUs that are cut in other ways at each look would fill the memory."""
        self._engine = PlacementEngine(viewed.view for viewed in self._viewed.values())
        self._least = self._engine.fleet.size

    def _learn(self, offerings: tuple[Offering, ...], isolations: dict[str, Isolation]) -> None:
        """They say which labels of hosts count, and with whom VMs may be."""
        apart = isolations != self._isolations
        if offerings == self._offerings and not apart:
            return
        self._offerings, self._isolations = offerings, isolations
        self._know(shipped_profiles().with_site(offerings))
        before = self._rules
        keys = frozenset(key for offering in self._known.offerings for key, _ in offering.hosts) | {KEPT_FOR}
        self._rules = replace(before, label_keys=keys)
        for name, seen in self._seen.items():
            if (seen.vms and apart) or (seen.host.labels and before.label_keys != keys):
                self._view(name)

    def _know(self, profiles: Profiles) -> None:
        self._known = KnownProfiles(profiles=profiles, types=self._types.names)
        self._fleet = self._unlike = None

    def _keep(self, name: str, seen: HostRecord | None) -> None:
        before = self._seen.pop(name, None)
        if before is not None and before.facts is not None:
            self._types.drop(before.facts)
        if seen is not None:
            self._seen[name] = seen
            if seen.facts is not None:
                self._types.add(seen.facts)
        if self._known.types != self._types.names:
            self._know(self._known.profiles)
        self._view(name)

    def _view(self, name: str) -> None:
        """Tell the engine of a host, with what is reserved there."""
        self._fleet = self._unlike = None
        self._uncounted.add(name)
        seen = self._seen.get(name)
        if seen is None or seen.facts is None:
            self._viewed.pop(name, None)
            self._engine.remove_host(name)
            return
        viewed = self._viewer.view(self._with_reserved(seen), seen.facts, self._rules)
        self._viewed[name] = viewed
        self._engine.replace_host(viewed.view)

    def _with_reserved(self, seen: HostRecord) -> HostRecord:
        placed = {claim.vm for claim in seen.claims}
        here = [
            reserved
            for reserved in self._reserved.values()
            if reserved.vm.host == seen.host.name and reserved.vm.id not in placed
        ]
        if not here:
            return seen
        coming = {reserved.vm.id for reserved in here}
        others = tuple(vm for vm in seen.vms if vm.id not in coming)
        claims = tuple(reserved.claim for reserved in here if reserved.claim is not None)
        return replace(seen, claims=(*seen.claims, *claims), vms=(*others, *(reserved.vm for reserved in here)))
