# SPDX-License-Identifier: Apache-2.0
"""What would fit where, and why not: answers for people, over the fleet as it is now. Nothing is claimed."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from orchestrator.core.advice.alike import CapacityRow, OneOfEach
from orchestrator.core.advice.explain import (
    NO_PLACE,
    Explanation,
    TenantExplanation,
    explain_in,
    for_tenant,
    led_by,
)
from orchestrator.core.advice.gpu_map import EVERY_GPU, GpuFilter, GpuRow, gpu_map, own_gpus
from orchestrator.core.advice.overview import FleetUse, RackUse, by_rack
from orchestrator.core.errors import Conflict, NoCapacity, NotFound, Reason
from orchestrator.core.maintenance.maintenance import FitGain
from orchestrator.core.names import check_name
from orchestrator.core.offerings.offering import Offering, check_supported, has_whole_pages, unsupported
from orchestrator.core.placement.from_offering import request_for
from orchestrator.core.placement.preemption import place_preempting
from orchestrator.core.placement.rules.wanted import Wanted, profile_of
from orchestrator.core.placement.views import HostView, Request
from orchestrator.core.tenancy.access import Tenants
from orchestrator.core.vms.network import DEFAULT_NAME, Network
from orchestrator.core.vms.vm import VmShape, VmState
from orchestrator.core.vms.volume import READ_ONLY
from orchestrator.ports.clock import Clock
from orchestrator.services.fleet.index import Fleet, FleetIndex
from orchestrator.services.fleet.known_profiles import KnownProfiles
from orchestrator.services.fleet.named import check_named
from orchestrator.services.fleet.view import Viewed
from orchestrator.services.networks import network_for
from orchestrator.services.pools import check_disk_encryption, check_pool_has, pool_on_hosts
from orchestrator.services.tenancy.quotas import QuotaRoom, amounts_asked, made_with
from orchestrator.services.tenancy.tenants import known_tenant
from orchestrator.services.vms.deallocating import may_preempt, preemptible_now
from orchestrator.services.vms.fit_query import FitQuery, check_roles, check_roles_where_placed
from orchestrator.services.vms.moves import MoveService
from orchestrator.services.vms.placement_request import first_reason, in_coarse_steps, with_networks, with_site_rules
from orchestrator.services.vms.rearranging import LegalMoves, asking, fit_by_moves, may_move_for
from orchestrator.services.vms.requirements import check_networks
from orchestrator.services.vms.vm_volumes import check_names, place_with, volumes_for
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction

_WHAT_IF = "what-if"
"""Stands for the VM that is only asked about."""


@dataclass(frozen=True, kw_only=True)
class Question(VmShape):
    """A VM that somebody thinks of: without a name, and its image does not matter. What is left out is as create takes
    it."""

    name: str = ""
    tenant: str = "default"
    profile: str = ""
    image: str = ""
    vcpus: int = 0
    memory_mib: int = 0
    disk_bytes: int = 0
    network: str = DEFAULT_NAME
    each: bool = False
    """The same is asked of every profile that hosts offer, one by one."""
    count: int = 1
    """Devices of that profile in the VM."""
    preempt: bool = False
    """Whether it is asked too who would be stopped for it."""


@dataclass(frozen=True)
class _Ties:
    """Where its networks and volumes let a VM be. ``disk_bytes``: of the volumes that lie nowhere yet."""

    host: str | None
    disk_bytes: int
    networks: tuple[Network, ...]
    volumes: tuple[str, ...]
    """As hosts call them."""
    tied_by: str | None
    """Name of the volume that alone says which host."""
    brings: Counter[str]
    """What is made with it and counts too."""


@dataclass(frozen=True, kw_only=True)
class Named:
    """VM id → ``name`` as people know it."""

    explanation: Explanation
    names: dict[str, str]
    preempts: tuple[str, ...] = ()
    """``tenant/name`` of those that would be stopped for it, if it asked for that."""
    moves: tuple[str, ...] = ()
    """``tenant/name from HOST to HOST`` of those that would move for it, if it asked for that."""


@dataclass(frozen=True, kw_only=True)
class CapacityService:
    """Asks the placement engine about VMs that nobody has asked for yet."""

    store: Store
    index: FleetIndex
    clock: Clock
    moves: MoveService

    def refresh(self) -> None:
        """Read what has changed in the fleet, so that nobody who asks waits for more than the newest of it: at first
        seconds for 10,000 hosts. Raises what the database does."""
        with self.index.current():
            pass

    def room(self, question: Question, tenant: str) -> tuple[CapacityRow, ...]:
        """How many more VMs the tenant could create now: what its quota covers and there are places for.

        Where nothing is promised to it, it is told whether one fits and not how many: that would count others' VMs.
        Raises what :meth:`capacity` raises."""
        with self.index.current(), self.store.read() as tx:
            now, of_tenant = self._fleet().of_tenant(tenant), replace(question, tenant=tenant)
            quota, ties = QuotaRoom.of(tx, tenant), _ties(tx, of_tenant)
            no_network = quota.refuses(ties.brings)
            wanted = [
                (_amounts(vm, offering), self._counted(tx, vm, offering, ties, coarse=True), vm.profile)
                for vm, offering in _questions(now, of_tenant)
            ]
            hosts = _tied(now, ties)
            places = {query: query.count(hosts) for query in dict.fromkeys(query for _, query, _ in wanted)}
        rows = []
        for amounts, query, profile in wanted:
            at_most = _most(min(places[query], max(1, quota.promised(amounts))), of_tenant)
            most, over = 0 if no_network else quota.most(amounts, at_most), no_network or quota.refuses(amounts)
            none = None if most else next(iter(over), query.refused or NO_PLACE)
            rows.append(CapacityRow(profile, most, none))
        return tuple(rows)

    def capacity(self, question: Question) -> tuple[CapacityRow, ...]:
        """How many more VMs fit: of one profile, or of everything that some host's GPUs can be cut into.

        That is every offering, and every vGPU type that no offering gives. Modes are not switched. Of VMs with data
        volumes one fits at most, as a volume is one VM's.

        :raises NotFound: ``profile.unknown``, ``network.unknown``, ``volume.unknown``
        :raises InvalidInput: ``network.repeated``, ``volume.repeated`` …; :raises Conflict: ``volume.…``
        :raises Conflict, NoCapacity, NotFound: of one profile, as :meth:`explain`; of everything it counts for none
        """
        with self.index.current() as index, self.store.read() as tx:
            now = index.fleet().of_tenant(question.tenant)
            ties = _ties(tx, question)
            questions = _questions(now, question)
            wanted = [(vm.profile, self._counted(tx, vm, offering, ties)) for vm, offering in questions]
            hosts = _tied(now, ties)
            places = {query: query.count(hosts) for query in dict.fromkeys(query for _, query in wanted)}
            return tuple(
                CapacityRow(name if question.each else query.request.profile, _most(places[query], question),
                            None if places[query] else query.why_none(hosts, index, name, alone=not question.each))
                for name, query in wanted
            )  # fmt: skip

    def free(self, names: Iterable[str]) -> dict[str, int]:
        """How many VMs of their usual size fit now of each of these profiles; 0 of what is refused. Of what one
        tenant alone has, that tenant's."""
        with self.index.current(), self.store.read() as tx:
            now, question = self._fleet(), Question(each=True)
            ties = _ties(tx, question)
            wanted = {}
            for offering in map(now.known.resolve, names):
                if not unsupported(offering):
                    vm = replace(question, profile=offering.name, tenant=offering.kept_for or question.tenant)
                    wanted[vm.profile] = self._counted(tx, now.known.sized(vm, offering), offering, ties)
            places = {query: query.count(now) for query in dict.fromkeys(wanted.values())}
        return {name: places[wanted[name]] if name in wanted else 0 for name in names}

    def gains(self, then: Mapping[str, HostView]) -> tuple[FitGain, ...]:
        """Of which profiles :meth:`capacity` would count other numbers if these hosts, by name, were so; more first."""
        with self.index.current(), self.store.read() as tx:
            now = self._fleet().of_tenant(Question.tenant)
            hosts = (replace(host, view=then.get(host.view.name, host.view)) for host in now.hosts)
            after = replace(now, hosts=tuple(hosts))
            known = self._each(tx, now)
            counts = {query: (query.count(now), query.count(after)) for query in dict.fromkeys(known.values())}
        rows = (FitGain(profile=name, now=counts[query][0], planned=counts[query][1]) for name, query in known.items())
        return tuple(sorted((row for row in rows if row.now != row.planned), key=lambda row: row.now - row.planned))

    def _each(self, tx: Transaction, now: Fleet) -> dict[str, FitQuery]:
        """By name, what may be had."""
        question = Question(each=True)
        ties = _ties(tx, question)
        return {vm.profile: self._counted(tx, vm, offering, ties) for vm, offering in _questions(now, question)}

    def count(self, names: Collection[str]) -> dict[str, int]:
        """What :meth:`capacity` counts of these profiles; of one that is not offered any more nothing is said."""
        with self.index.current(), self.store.read() as tx:
            now = self._fleet().of_tenant(Question.tenant)
            return {name: query.count(now) for name, query in self._each(tx, now).items() if name in names}

    def explain(self, question: Question, *, coarse: bool = False) -> Named:
        """Where it would go and why, or why not and what would make it fit. ``coarse``: for who does not watch the
        pool.

        :raises NotFound: ``….unknown`` of profile, network, tenant, host, GPU or volume
        :raises InvalidInput: ``network.repeated``, ``volume.repeated`` …
        :raises Conflict: ``volume.…``: one that no new VM can be given
        :raises Conflict, NotFound: roles that its offering asks for cannot be run in it, as create says it
        """
        return asking(self.moves, lambda may_ask: self._explain(question, coarse=coarse, may_ask=may_ask))

    def _explain(self, question: Question, *, coarse: bool, may_ask: bool) -> Named:
        with self.index.current() as index, self.store.read() as tx:
            known_tenant(tx, question.tenant)
            check_named(tx, index, question.host, question.gpu)
            fleet = self._fleet().of_tenant(question.tenant)
            known = fleet.known
            offering = known.resolve(question.profile)
            question = known.sized(question, offering)
            wanted = self._wanted(tx, question, offering, ties := _ties(tx, question, question.host))
            check_pool_has(tx, wanted.vm.pool, question.disk_bytes)
            exact = request_for(wanted)
            request = request_for(in_coarse_steps(wanted)) if coarse else exact
            amounts = _amounts(question, offering) + ties.brings
            over = QuotaRoom.told(tx, question.tenant, amounts).refuses(amounts)
            if over:
                return Named(explanation=Explanation(request=request, reasons=over, code="quota.exceeded"), names={})
            with self.index.current() as now:
                explanation = explain_in(now.engine, request, fleet.views)
                first = None if explanation.fits else first_reason(tx, now, exact, question)
            asks = question.preempt and (not coarse or may_preempt(tx, question.tenant, question.priority))
            preempts = self._preempts(tx, question, request, fleet) if asks and not explanation.fits else ()
            moves = () if explanation.fits or coarse else self._moves(tx, question, request, may_ask=may_ask)
            if explanation.placement is not None:
                check_roles(tx, offering, question.tenant, explanation.placement.host_id)
        return Named(
            explanation=led_by(explanation, first, exact), names=fleet.vm_names, preempts=preempts, moves=moves
        )

    def _moves(self, tx: Transaction, question: Question, request: Request, *, may_ask: bool) -> tuple[str, ...]:
        """Found as create does with ``with_moves``. :raises Unasked: drivers may still refuse some"""
        may = may_move_for(tx, question, with_moves=True, preempt=False)
        legal = LegalMoves(
            tx=tx, fleet=self.index, moves=self.moves, may_ask=may_ask,
            may_move=lambda vm: may is None or vm.id in may,
        )  # fmt: skip
        fitting = fit_by_moves(legal, request)
        moves = () if fitting is None else fitting[1]
        named = ((tx.vms.find_id(move.vm), move) for move in moves)
        return tuple(f"{vm.full_name} from {move.source} to {move.target}" for vm, move in named if vm is not None)

    def _preempts(self, tx: Transaction, question: Question, request: Request, fleet: Fleet) -> tuple[str, ...]:
        """Chosen as create does: by how long they have run."""
        preemptible = preemptible_now(tx, tenant=question.tenant, priority=question.priority)
        urgent = replace(request, now_s=self.clock.now())
        preemption = place_preempting(urgent, fleet.views, preemptible)
        return () if preemption is None else tuple(preemptible[vm_id].full_name for vm_id in preemption[1].victims)

    def explain_for_tenant(self, question: Question) -> TenantExplanation:
        """Whether it fits, as the tenant of the question may know it; it may name no place. Raises as explain does."""
        named = self.explain(question, coarse=True)
        return for_tenant(named.explanation, named.preempts)

    def gpu_map(
        self, after: tuple[str, str] | None = None, most: int | None = None, only: GpuFilter = EVERY_GPU
    ) -> tuple[GpuRow, ...]:
        """GPUs as their slots with the VMs in them, by host: ``most`` of those behind ``after`` that ``only`` picks."""
        hosts = self._named(only.host)
        if only.picks_hosts:
            hosts = tuple(viewed for viewed in hosts if only.picks_host(viewed.view.name, viewed.view.rack))
        first = 0 if after is None else bisect_left(hosts, after[0], key=lambda one: one.view.name)
        chosen = (viewed for viewed in islice(hosts, first, None) if viewed.use.how_many(only))
        rows = (row for viewed in chosen for row in _rows(viewed))
        left = (row for row in rows if after is None or row.host != after[0] or row.gpu > after[1])
        return tuple(islice(filter(only.picks, left), most))

    def how_many_gpus(self, only: GpuFilter) -> int:
        """That :meth:`gpu_map` would have without a bound."""
        return len(self.gpu_map(only=only)) if only.picks_hosts else self.use().how_many(only)

    def racks(self, only: GpuFilter = EVERY_GPU) -> tuple[RackUse, ...]:
        """Hosts by rack, and how much of their GPUs is used: of those of the models that ``only`` names."""
        fleet = self._fleet()
        return fleet.racks if only.models is None else by_rack(viewed.host_use_of(only) for viewed in fleet.hosts)

    def use(self) -> FleetUse:
        """How much of all GPUs is used."""
        with self.index.current() as now:
            return now.use()

    def vm_counts(self, tenants: Tenants) -> dict[tuple[str, VmState], int]:
        """How many VMs these tenants have, by tenant and state."""
        with self.store.read() as tx:
            return tx.fleet.vm_counts(tenants)

    def own_gpu_map(self, tenants: Collection[str]) -> tuple[GpuRow, ...]:
        """The GPUs that VMs of these tenants are on, without all that is others'."""
        hosts = (viewed for viewed in self._fleet().hosts if any(vm.spec.tenant in tenants for vm in viewed.seen.vms))
        return own_gpus((row for viewed in hosts for row in _rows(viewed)), tenants)

    def _named(self, host: str | None) -> tuple[Viewed, ...]:
        """None: all, by name."""
        with self.index.current() as now:
            return now.fleet().hosts if host is None else tuple(filter(None, (now.host(host),)))

    def _fleet(self) -> Fleet:
        with self.index.current() as now:
            return now.fleet()

    def _counted(
        self, tx: Transaction, question: Question, offering: Offering, ties: _Ties, *, coarse: bool = False
    ) -> FitQuery:
        """Where it is the only question, a refusal by its pool or of its roles is raised."""
        wanted = self._wanted(tx, question, offering, ties)
        request = request_for(in_coarse_steps(wanted) if coarse else wanted)
        refused = None
        try:
            check_pool_has(tx, wanted.vm.pool, question.disk_bytes)
            check_roles_where_placed(tx, self.index.engine, request, offering)
        except (Conflict, NoCapacity, NotFound) as error:
            if not question.each:
                raise
            for_tenants = error.told if coarse and isinstance(error, NoCapacity) else None
            refused = for_tenants or Reason(code=error.code, message=error.message)
        return FitQuery(request=request, one_per_host=offering.anti_affinity == "host", refused=refused)

    def _wanted(self, tx: Transaction, question: Question, offering: Offering, ties: _Ties) -> Wanted:
        check_supported(offering)
        check_name(question.tenant, what="tenant")
        pool = pool_on_hosts(tx, question.pool, question.tenant, offering)
        if not question.each:
            check_disk_encryption(tx, question, pool)
        question = replace(question, host=ties.host, pool=pool, volumes=ties.volumes)
        tied = replace(question, disk_bytes=question.host_disk_bytes + ties.disk_bytes)
        bare = Wanted(vm_id=_WHAT_IF, vm=tied, offering=offering, count=question.count, tied_by=ties.tied_by)
        return with_site_rules(tx, self.index, with_networks(tx, bare, ties.networks))


def _amounts(vm: Question, offering: Offering) -> Counter[str]:
    return amounts_asked(
        offering, count=vm.count, vcpus=vm.vcpus, memory_mib=vm.memory_mib, disk_bytes=vm.disk_bytes, nic=vm.nic
    )


def _questions(now: Fleet, question: Question) -> list[tuple[Question, Offering]]:
    """The one that was put, or the same for everything that may be had; with sizes."""
    names = _possible(now.each, now.known, question) if question.each else [question.profile]
    offerings = [now.known.resolve(name) for name in names]
    return [
        (now.known.sized(replace(question, profile=name), offering), offering)
        for name, offering in zip(names, offerings, strict=True)
    ]


def _ties(tx: Transaction, question: Question, host: str | None = None) -> _Ties:
    """``host``: what the question names."""
    check_networks(question.networks)
    check_names(question.volumes)
    networks = tuple(network_for(tx, question.tenant, name) for name in question.networks)
    volumes = volumes_for(tx, question.tenant, question.volumes, host, None)
    where, disk_bytes, tied_by = place_with(volumes, host, 0)
    brings = made_with(tx, (network.name for network in networks))
    return _Ties(where, disk_bytes, networks, tuple(volume.on_hosts for volume in volumes), tied_by, brings)


def _most(number: int, question: Question) -> int:
    return number if all(name.endswith(READ_ONLY) for name in question.volumes) else min(number, 1)


def _tied(fleet: Fleet, ties: _Ties) -> Fleet:
    """Of its hosts the one that volumes tie a VM to."""
    if ties.host is None:
        return fleet
    return replace(fleet, hosts=tuple(viewed for viewed in fleet.hosts if viewed.view.name == ties.host))


def _rows(host: Viewed) -> Iterable[GpuRow]:
    vms = host.seen.vms
    joined = {vm.id: device.fabric.partition for vm in vms for device in vm.devices if device.fabric is not None}
    rows = gpu_map((host.view,), names={vm.id: vm.spec.name for vm in vms}, partitions=joined)
    return sorted(rows, key=lambda row: row.gpu)


def _possible(each: OneOfEach, known: KnownProfiles, question: Question) -> list[str]:
    """Offerings that some GPU can give to such VMs, and vGPU types that no offering gives."""
    gpus = [gpu for kind in each.kinds for gpu in kind.first.gpus]
    profiles = {name for gpu in gpus for name in gpu.geometry.options}
    models = {gpu.geometry.model for gpu in gpus}
    offered = [
        offering for offering in known.offerings
        if not unsupported(offering)
        and has_whole_pages(offering, question.memory_mib or known.profiles.size(offering).memory_mib)
        and (models & set(offering.gpu_models) if offering.gpu_count else profile_of(offering) in profiles)
    ]  # fmt: skip
    covered = {offering.vgpu_type for offering in offered}
    return [*sorted(offering.name for offering in offered), *sorted(known.types - covered)]
