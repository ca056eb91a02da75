# SPDX-License-Identifier: Apache-2.0
"""What would fit where, and why not: answers for people, over the fleet as it is now. Nothing is claimed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields, replace
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
from orchestrator.core.advice.gpu_map import GpuRow, gpu_map, own_gpus
from orchestrator.core.errors import Conflict, NotFound, Reason
from orchestrator.core.hosts.bridges import Uplink
from orchestrator.core.hosts.nic import NicKind
from orchestrator.core.names import check_name
from orchestrator.core.offerings.offering import check_supported, has_whole_pages, unsupported
from orchestrator.core.placement.from_offering import profile_of
from orchestrator.core.placement.preemption import place_preempting
from orchestrator.core.placement.views import Request
from orchestrator.core.tenancy.quota import Amounts
from orchestrator.core.vms.network import DEFAULT_NAME
from orchestrator.core.vms.priority import Priority
from orchestrator.ports.clock import Clock
from orchestrator.services.fleet.index import Fleet, FleetIndex
from orchestrator.services.fleet.known_profiles import KnownProfiles
from orchestrator.services.fleet.named import check_named
from orchestrator.services.fleet.view import Viewed
from orchestrator.services.networks import network_for
from orchestrator.services.tenancy.quotas import QuotaRoom, amounts_asked
from orchestrator.services.tenancy.tenants import known_tenant
from orchestrator.services.vms.deallocating import preemptible_now
from orchestrator.services.vms.fit_query import FitQuery, check_roles, check_roles_where_placed
from orchestrator.services.vms.placement_request import (
    asked_vm,
    first_reason,
    in_coarse_steps,
    placement_request,
)
from orchestrator.services.vms.requirements import check_networks
from orchestrator.services.vms.vm_volumes import check_names, place_with, volumes_for
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction

_WHAT_IF = "what-if"
"""Stands for the VM that is only asked about."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a VM that somebody thinks of would be, of whatever profile; left out: as create takes it.
    0: as its profile says."""

    tenant: str = "default"
    vcpus: int = 0
    memory_mib: int = 0
    disk_bytes: int = 0
    networks: tuple[str, ...] = (DEFAULT_NAME,)
    """What its tenant calls them, a network card each."""
    volumes: tuple[str, ...] = ()
    """Names of data volumes that it would be given."""
    nic: NicKind | None = None
    """A function of a network card near its GPU; None: what its profile says."""
    tpm: bool | None = None
    """A TPM of its own; None: what its profile says."""


@dataclass(frozen=True, kw_only=True)
class Question(Asked):
    """A VM that somebody thinks of."""

    profile: str
    count: int = 1
    """Devices of that profile in the VM."""
    host: str | None = None
    gpu: str | None = None
    priority: Priority | None = None
    """Whom it would preempt with that one; None: nobody asks."""


@dataclass(frozen=True)
class _Ties:
    """Where its networks and volumes let a VM be. ``disk_bytes``: of the volumes that lie nowhere yet."""

    host: str | None
    disk_bytes: int
    uplinks: tuple[Uplink, ...]


@dataclass(frozen=True, kw_only=True)
class Named:
    """VM id → ``name`` as people know it."""

    explanation: Explanation
    names: dict[str, str]
    preempts: tuple[str, ...] = ()
    """``tenant/name`` of those that would be stopped for it, if it asked for that."""


@dataclass(frozen=True, kw_only=True)
class CapacityService:
    """Asks the placement engine about VMs that nobody has asked for yet."""

    store: Store
    index: FleetIndex
    clock: Clock

    def room(self, question: Question | None, tenant: str, each: Asked | None = None) -> tuple[CapacityRow, ...]:
        """How many more VMs the tenant could create now: what its quota covers and there are places for.

        Where nothing is promised to it, it is told whether one fits and not how many: that would count others' VMs.
        Raises what :meth:`capacity` raises.
        """
        with self.index.current(), self.store.read() as tx:
            now, asked = self._fleet().of_tenant(tenant), replace(question or each or Asked(), tenant=tenant)
            quota, ties = QuotaRoom.of(tx, tenant), _ties(tx, asked)
            names = _possible(now.each, now.known, asked) if question is None else ()
            questions = _questions(question, asked, names, now.known)
            alone = question is not None
            wanted = [(one, self._counted(tx, one, now.known, ties, alone=alone, coarse=True)) for one in questions]
            there = _tied(now, ties)
            places = {one: one.count(there) for one in dict.fromkeys(one for _, one in wanted)}
        rows = []
        for one, counted in wanted:
            amounts = self._amounts(one, now.known)
            at_most = _most(min(places[counted], max(1, quota.promised(amounts))), asked)
            most, over = quota.most(amounts, at_most), quota.refuses(amounts)
            none = None if most else next(iter(over), counted.refused or NO_PLACE)
            rows.append(CapacityRow(one.profile, most, none))
        return tuple(rows)

    def _amounts(self, question: Question, known: KnownProfiles) -> Amounts:
        return amounts_asked(
            known.resolve(question.profile),
            count=question.count,
            vcpus=question.vcpus,
            memory_mib=question.memory_mib,
            disk_bytes=question.disk_bytes,
            nic=question.nic,
        )

    def capacity(self, question: Question | None, each: Asked | None = None) -> tuple[CapacityRow, ...]:
        """How many more VMs fit: of one profile, or of everything that some host's GPUs can be cut into.

        That is every offering, and every vGPU type that no offering gives. Modes are not switched. Of VMs with data
        volumes one fits at most, as a volume is one VM's.

        ``each``: what VMs of everything would be.

        :raises NotFound: ``profile.unknown``, ``network.unknown``, ``volume.unknown``
        :raises InvalidInput: ``network.repeated``, ``volume.repeated`` …; :raises Conflict: ``volume.…``
        :raises Conflict, NotFound: of one profile, as :meth:`explain`; of everything it counts for none
        """
        with self.index.current() as index, self.store.read() as tx:
            asked = question or each or Asked()
            now = index.fleet().of_tenant(asked.tenant)
            ties = _ties(tx, asked)
            names = _possible(now.each, now.known, asked) if question is None else ()
            questions = _questions(question, asked, names, now.known)
            wanted = [
                (one.profile, self._counted(tx, one, now.known, ties, alone=question is not None)) for one in questions
            ]
            there = _tied(now, ties)
            found = {
                one: (_most(one.count(there), asked), one.why_none(there, index))
                for one in dict.fromkeys(one for _, one in wanted)
            }
        if question is not None:
            return tuple(CapacityRow(one.request.profile, *row) for one, row in found.items())
        return tuple(CapacityRow(name, *found[one]) for name, one in wanted)

    def free(self, names: Iterable[str]) -> dict[str, int]:
        """How many VMs of their usual size fit now of each of these profiles; 0 of what is refused. Of what one
        tenant alone has, that tenant's."""
        with self.index.current(), self.store.read() as tx:
            now, asked = self._fleet(), Asked()
            ties = _ties(tx, asked)
            given = [one for one in map(now.known.resolve, names) if not unsupported(one)]
            of_tenants = ((one.name, replace(asked, tenant=one.kept_for or asked.tenant)) for one in given)
            asked_of = {name: _questions(None, by_tenant, [name], now.known)[0] for name, by_tenant in of_tenants}
            wanted = {name: self._counted(tx, one, now.known, ties, alone=False) for name, one in asked_of.items()}
            places = {one: one.count(now) for one in dict.fromkeys(wanted.values())}
        return {name: places[wanted[name]] if name in wanted else 0 for name in names}

    def explain(self, question: Question, *, coarse: bool = False) -> Named:
        """Where it would go and why, or why not and what would make it fit. ``coarse``: for who does not watch the
        pool.

        :raises NotFound: ``profile.unknown``, ``network.unknown``
        :raises NotFound: ``tenant.unknown``, ``host.unknown``, ``gpu.unknown``, ``volume.unknown``
        :raises InvalidInput: ``network.repeated``, ``volume.repeated`` …
        :raises Conflict: ``volume.…``: one that no new VM can be given
        :raises Conflict, NotFound: roles that its offering asks for cannot be run in it, as create says it
        """
        with self.index.current() as index, self.store.read() as tx:
            known_tenant(tx, question.tenant)
            check_named(tx, index, question.host, question.gpu)
            fleet = self._fleet().of_tenant(question.tenant)
            known = fleet.known
            offering = known.resolve(question.profile)
            question = known.sized(question, offering)
            request = self._request(tx, question, known, _ties(tx, question, question.host))
            exact, request = request, in_coarse_steps(request) if coarse else request
            amounts = self._amounts(question, known)
            over = QuotaRoom.told(tx, question.tenant, amounts).refuses(amounts)
            if over:
                return Named(explanation=Explanation(request=request, reasons=over, code="quota.exceeded"), names={})
            with self.index.current() as now:
                found = explain_in(now.engine, request, fleet.views)
                first = None if found.fits else first_reason(tx, now, exact, question)
            preempts = () if found.fits else self._preempts(tx, question, request, fleet)
            if found.placement is not None:
                check_roles(tx, offering, question.tenant, found.placement.host_id)
        return Named(explanation=led_by(found, first, exact), names=fleet.vm_names, preempts=preempts)

    def _preempts(self, tx: Transaction, question: Question, request: Request, fleet: Fleet) -> tuple[str, ...]:
        """Chosen as create does: by how long they have run."""
        if question.priority is None:
            return ()
        preemptible = preemptible_now(tx, tenant=question.tenant, priority=question.priority)
        asked = replace(request, now_s=self.clock.now())
        found = place_preempting(asked, fleet.views, preemptible)
        return () if found is None else tuple(preemptible[vm_id].full_name for vm_id in found[1].victims)

    def explain_for_tenant(self, question: Question) -> TenantExplanation:
        """Whether it fits, as the tenant of the question may know it; it may name no place.

        :raises NotFound: ``profile.unknown``
        """
        return for_tenant(self.explain(question, coarse=True).explanation)

    def gpu_map(self, after: tuple[str, str] | None = None, most: int | None = None) -> tuple[GpuRow, ...]:
        """GPUs as their slots with the VMs in them, by host: ``most`` of those behind ``after``."""
        hosts = self._fleet().hosts
        first = 0 if after is None else bisect_left(hosts, after[0], key=lambda one: one.view.name)
        rows = (row for at in range(first, len(hosts)) for row in _rows(hosts[at]))
        left = (row for row in rows if after is None or row.host != after[0] or row.gpu > after[1])
        return tuple(islice(left, most))

    def own_gpu_map(self, tenants: Collection[str]) -> tuple[GpuRow, ...]:
        """The GPUs that VMs of these tenants are on, without all that is others'."""
        hosts = (one for one in self._fleet().hosts if any(vm.spec.tenant in tenants for vm in one.seen.vms))
        return own_gpus((row for one in hosts for row in _rows(one)), tenants)

    def _fleet(self) -> Fleet:
        with self.index.current() as now:
            return now.fleet()

    def _counted(
        self, tx: Transaction, question: Question, known: KnownProfiles, ties: _Ties, *, alone: bool,
        coarse: bool = False,
    ) -> FitQuery:  # fmt: skip
        """``alone``: nothing else is asked, so that a refusal of its roles is raised."""
        request, offering = self._request(tx, question, known, ties), known.resolve(question.profile)
        request = in_coarse_steps(request) if coarse else request
        refused = None
        try:
            check_roles_where_placed(tx, self.index.engine, request, offering)
        except (Conflict, NotFound) as error:
            if alone:
                raise
            refused = Reason(code=error.code, message=error.message)
        return FitQuery(request=request, one_per_host=offering.anti_affinity == "host", refused=refused)

    def _request(self, tx: Transaction, question: Question, known: KnownProfiles, ties: _Ties) -> Request:
        offering = check_supported(known.resolve(question.profile))
        check_name(question.tenant, what="tenant")
        tied = replace(question, host=ties.host, disk_bytes=question.disk_bytes + ties.disk_bytes)
        asked = replace(asked_vm(tied, _WHAT_IF, ties.uplinks), count=question.count)
        return placement_request(tx, self.index, asked, offering)


def _questions(question: Question | None, asked: Asked, names: Iterable[str], known: KnownProfiles) -> list[Question]:
    """The one that was put, in the tenant it is asked for, or one for each of these profiles; with sizes."""
    if question is not None:
        return [known.sized(replace(question, tenant=asked.tenant), known.resolve(question.profile))]
    same = {one.name: getattr(asked, one.name) for one in fields(Asked)}
    return [known.sized(Question(profile=name, **same), known.resolve(name)) for name in names]


def _ties(tx: Transaction, asked: Asked, host: str | None = None) -> _Ties:
    """``host``: what the question names."""
    check_networks(asked.networks)
    check_names(asked.volumes)
    uplinks = (network_for(tx, asked.tenant, name).uplink for name in asked.networks)
    volumes = volumes_for(tx, asked.tenant, asked.volumes, host)
    where, disk_bytes = place_with(volumes, host, 0)
    return _Ties(where, disk_bytes, tuple(one for one in uplinks if one is not None))


def _most(number: int, asked: Asked) -> int:
    return min(number, 1) if asked.volumes else number


def _tied(fleet: Fleet, ties: _Ties) -> Fleet:
    """Of its hosts the one that volumes tie a VM to."""
    if ties.host is None:
        return fleet
    return replace(fleet, hosts=tuple(one for one in fleet.hosts if one.view.name == ties.host))


def _rows(host: Viewed) -> Iterable[GpuRow]:
    """By GPU."""
    rows = gpu_map((host.view,), names={vm.id: vm.spec.name for vm in host.seen.vms})
    return sorted(rows, key=lambda row: row.gpu)


def _possible(each: OneOfEach, known: KnownProfiles, asked: Asked) -> list[str]:
    """Offerings that some GPU can give to such VMs, and vGPU types that no offering gives."""
    gpus = [gpu for kind in each.kinds for gpu in kind.first.gpus]
    profiles = {name for gpu in gpus for name in gpu.geometry.options}
    models = {gpu.geometry.model for gpu in gpus}
    offered = [
        one for one in known.offerings
        if not unsupported(one) and has_whole_pages(one, asked.memory_mib or known.profiles.size(one).memory_mib)
        and (models & set(one.gpu_models) if one.gpu_count else profile_of(one) in profiles)
    ]  # fmt: skip
    covered = {one.vgpu_type for one in offered}
    return [*sorted(one.name for one in offered), *sorted(known.types - covered)]
