# SPDX-License-Identifier: Apache-2.0
"""The engine: plan a request, take it, give it back. The same for one decision and for a million."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from orchestrator.core.geometry.cut import Choice, Taken, cut_words
from orchestrator.core.placement.constraints import allows
from orchestrator.core.placement.fleet import Fleet, FleetHost, Gpu
from orchestrator.core.placement.on_host import PlansOfHosts
from orchestrator.core.placement.rankings import RankedPlace, Rankings
from orchestrator.core.placement.rules.health import OnWatch, SparesWatched
from orchestrator.core.placement.rules.labels import is_kept
from orchestrator.core.placement.rules.rule import Amounts
from orchestrator.core.placement.scores import Scores
from orchestrator.core.placement.state_table import EMPTY, Demand, StateStep
from orchestrator.core.placement.views import HostView, Occupied, Part, Placement, Request

_WHOLE_SLOT = Taken("whole", 0, 1)


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    """A place found: GPU numbers with the step to take on each (None: the whole GPU)."""

    host: int
    gpus: tuple[tuple[int, StateStep | None], ...]
    score: float


@dataclass(slots=True)
class HeldClaim:
    """What one VM has."""

    request: Request
    host: FleetHost
    gpus: tuple[Gpu, ...]
    spent: Amounts = ()
    """Beside vCPUs and memory."""
    gib: float | None = None
    """GPU memory of its places; worked out when first asked for, as only preemption does."""


class PlacementEngine:
    """Hosts, claims and rankings. Not thread-safe; copies are made by loading again."""

    def __init__(self, hosts: Iterable[HostView] = (), *, scores: Scores | None = None) -> None:
        self.fleet = Fleet()
        self.scores = scores or Scores()
        self.rankings = Rankings(self.fleet, self.scores)
        self.vms: dict[str, HeldClaim] = {}
        self.counts: dict[Demand, int] = {}
        """Devices in use, by demand."""
        self.priorities: dict[int, int] = {}
        """VMs by priority."""
        self.filtering = 0
        """Needs of VMs that may keep others off their GPUs."""
        self.kept = 0
        """Hosts that are kept for a tenant."""
        for view in hosts:
            self.add_host(view)

    def add_host(self, view: HostView) -> None:
        """Take in a host with the VMs on it."""
        self._count_in(self.fleet.add(view))

    def replace_host(self, view: HostView) -> None:
        """A newer picture of a host, by its id; one that was not there yet is taken in."""
        old = self.fleet.host(view.host_id)
        if old is not None and len(old.gpus) == len(view.gpus):
            self._count_out(old)
            self._count_in(self.fleet.replace(old, view))
            return
        self.remove_host(view.host_id)
        self.add_host(view)

    def remove_host(self, host_id: str) -> None:
        """With the VMs on it. Gone already is fine."""
        host = self.fleet.host(host_id)
        if host is not None:
            self._count_out(host)
            self.fleet.remove(host)

    def _count_out(self, host: FleetHost) -> None:
        self.kept -= is_kept(host.view.facts)
        for vm_id in {item.vm_id for gpu in host.gpus for _, item in gpu.held}:
            held = self.vms.get(vm_id)
            if held is not None and held.host is host:
                self.count(self.vms.pop(vm_id).request, -1)

    def _count_in(self, host: FleetHost) -> None:
        self.kept += is_kept(host.view.facts)
        gpus: dict[str, list[Gpu]] = {}
        first: dict[str, Occupied] = {}
        for gpu in host.gpus:
            for _, item in gpu.held:
                gpus.setdefault(item.vm_id, []).append(gpu)
                first.setdefault(item.vm_id, item)
        for vm_id, item in first.items():
            request = _request_of(item, len(gpus[vm_id]))
            before = self.vms.get(vm_id)
            if before is not None:  # it has moved here, and the host that it was on is not seen anew yet
                self.count(before.request, -1)
            self.vms[vm_id] = HeldClaim(request, host, tuple(gpus[vm_id]), item.spent)
            self.count(request, 1)

    def count(self, request: Request, sign: int) -> None:
        """Count a VM in (1) or out (-1)."""
        demand = demand_of(request)
        self.counts[demand] = self.counts.get(demand, 0) + sign * request.count
        self.priorities[request.priority] = self.priorities.get(request.priority, 0) + sign
        self.filtering += sign * sum(need.filters_others for need in request.needs)

    def is_filtered(self, request: Request) -> bool:
        """Whether room alone does not tell where the request may go."""
        return request.is_filtered or self.filtering > 0 or self.kept > 0

    def plan(self, request: Request) -> PlacementPlan | None:
        """The best place for a request, None when nothing fits. Changes nothing. Quotas are asked separately. GPUs on
        watch are taken where no others will do."""
        plan = self._best(request)
        if plan is None or not _is_watched(self.fleet.gpus[number] for number, _ in plan.gpus):
            return plan
        sparing = replace(request, needs=(*request.needs, SparesWatched()))
        spared = None if request.whole_gpus else self._best(sparing)  # of sets of GPUs it judges no GPU
        return spared or self._plan_host_by_host(sparing) or plan

    def _best(self, request: Request) -> PlacementPlan | None:
        fleet = self.fleet
        fleet.learn_amounts(request.vcpus, request.memory_mib)
        if request.count > 1 or request.is_named or (request.whole_gpus > 0 and request.seeks_gpus):
            return self._plan_host_by_host(request)
        if not fleet.classes.any_host(request.vcpus, request.memory_mib):
            return None
        plan = self._walk(request, _filter(self, request))
        if plan is None and request.seeks_gpus:
            # of a host's empty GPUs the walk offers one, whichever will do
            return self._plan_host_by_host(request)
        return plan

    def _walk(self, request: Request, accept: Callable[[FleetHost, Gpu | None], bool] | None) -> PlacementPlan | None:
        classes = self.fleet.classes
        fits = classes.fitting(request.vcpus, request.memory_mib)
        if not classes.tells_apart(request.vcpus, request.memory_mib):
            accept = _with_room(request, accept)
        best: RankedPlace | None = None
        best_number = -1
        for entry in self.rankings.of(demand_of(request)):
            # fields by position: most entries have no members, and this loop is the hot one
            if entry[3]:
                if best is not None and (entry.score, entry.rank) > (best.score, best.rank):
                    break
                number = self._first(entry, fits, accept)
                if number >= 0 and (best is None or number < best_number):
                    best, best_number = entry, number
        return None if best is None else self._to_plan(best, self.fleet.gpus[best_number])

    def _first(
        self, entry: RankedPlace, fits: list[bool], accept: Callable[[FleetHost, Gpu | None], bool] | None
    ) -> int:
        """The lowest GPU number among members that will do, -1 if there is none."""
        lowest = -1
        for host_class, members in entry.members.items():
            if fits[host_class]:
                item = members.smallest() if accept is None else self._first_accepted(entry, members, accept)
                if item >= 0:
                    number = item if entry.position < 0 else self._number_at(item, entry)
                    if lowest < 0 or number < lowest:
                        lowest = number
        return lowest

    def _number_at(self, host: int, entry: RankedPlace) -> int:
        position = entry.position if entry.choice is None else entry.choice.start
        return self.fleet.hosts[host].gpus[position].number

    def _first_accepted(
        self, entry: RankedPlace, members: Iterable[int], accept: Callable[[FleetHost, Gpu | None], bool]
    ) -> int:
        fleet = self.fleet
        for item in members:
            if entry.position < 0:
                gpu = fleet.gpus[item]
                if accept(gpu.host, gpu):
                    return item
            else:
                host = fleet.hosts[item]
                if accept(host, None if entry.choice is not None else host.gpus[entry.position]):
                    return item
        return -1

    def _to_plan(self, entry: RankedPlace, gpu: Gpu) -> PlacementPlan:
        if entry.choice is None:
            return PlacementPlan(gpu.host.number, ((gpu.number, entry.step),), entry.score)
        return PlacementPlan(gpu.host.number, whole_parts(gpu.host, entry.choice), entry.score)

    def _plan_host_by_host(self, request: Request) -> PlacementPlan | None:
        if request.host is not None:
            named = self.fleet.host(request.host)
            hosts: Iterable[FleetHost] = (named,) if named is not None else ()
        else:
            hosts = self.fleet.hosts
        best: tuple[float, int, int, PlacementPlan] | None = None
        plans = PlansOfHosts(self.rankings, request, beside=self.is_filtered(request))
        for host in hosts:
            if host.view.cordoned:
                continue
            plan = plans.on(host)  # of most hosts known already, so this is asked first
            if plan is not None and (best is None or plan[0] <= best[0]) and allows(request, host, None):
                key = (plan[0], int(not host.used), host.number, PlacementPlan(host.number, plan[1], plan[0]))
                if best is None or key[:3] < best[:3]:
                    best = key
        return best[3] if best is not None else None

    def take(self, request: Request, plan: PlacementPlan) -> Placement:
        """Claim what was planned. The plan must come from the present state."""
        host = self.fleet.hosts[plan.host]
        gpus = [self.fleet.gpus[number] for number, _ in plan.gpus]
        spent = tuple(amount for need in request.needs for amount in need.takes(gpus))
        _spend(request, host, spent, 1)
        parts = []
        for gpu, (_, step) in zip(gpus, plan.gpus, strict=True):
            old = gpu.state
            taken, slots = self._occupy(gpu, step)
            gpu.held.append((taken, _occupied_of(request, taken, spent)))
            self.fleet.touch(host, gpu, old)
            parts.append(Part(gpu.view.gpu_id, gpu.cut_name or "", slots, taken.start, taken.size))
        host.vms.add(request.vm_id)
        self.vms[request.vm_id] = HeldClaim(request, host, tuple(gpus), spent)
        self.count(request, 1)
        why = _why(request, host, tuple(dict.fromkeys(gpus)), spent)
        return Placement(host.view.host_id, tuple(parts), why, spent)

    def _occupy(self, gpu: Gpu, step: StateStep | None) -> tuple[Taken, tuple[int, ...]]:
        if step is None:
            gpu.whole = True
            return _WHOLE_SLOT, (0,)
        cut = gpu.table.cuts[step.cut]
        start = cut.real_start((taken for taken, _ in gpu.held), step.choice)
        number = self.fleet.number_of(gpu.table, step.cut, step.choice.after)
        self.fleet.unindex_gpu(gpu, gpu.state)
        gpu.cut, gpu.state = step.cut, number
        return Taken(step.shape, start, step.choice.size), cut.slots_of(start, step.choice)

    def release(self, vm_id: str) -> None:
        """Give back what a VM has."""
        held = self.vms.pop(vm_id)
        host, request = held.host, held.request
        _spend(request, host, held.spent, -1)
        host.vms.discard(vm_id)
        for gpu in dict.fromkeys(held.gpus):
            old, cut = gpu.state, gpu.cut
            gpu.held = [item for item in gpu.held if item[1].vm_id != vm_id]
            self.fleet.unindex_gpu(gpu, old)
            gpu.whole = False
            if cut >= 0:
                self.fleet.set_state(gpu, cut)
            self.fleet.touch(host, gpu, old)
        self.count(request, -1)


def _is_watched(gpus: Iterable[Gpu]) -> bool:
    return any(OnWatch() in gpu.facts for gpu in gpus)


def _spend(request: Request, host: FleetHost, spent: Amounts, sign: int) -> None:
    host.vcpus -= sign * request.vcpus
    host.memory_mib -= sign * request.memory_mib
    host.spend(spent, sign)


def whole_parts(host: FleetHost, choice: Choice) -> tuple[tuple[int, StateStep | None], ...]:
    """The GPUs of a whole-GPU choice."""
    return tuple((gpu.number, None) for gpu in host.gpus if choice.mask >> gpu.position & 1)


def demand_of(request: Request) -> Demand:
    """What of the request decides which places are legal."""
    return request.demand


def _filter(engine: PlacementEngine, request: Request) -> Callable[[FleetHost, Gpu | None], bool] | None:
    if not engine.is_filtered(request):
        return None
    return lambda host, gpu: allows(request, host, gpu)


def _with_room(
    request: Request, accept: Callable[[FleetHost, Gpu | None], bool] | None
) -> Callable[[FleetHost, Gpu | None], bool]:
    """``accept``, and the host has the vCPUs and memory: for amounts that host classes do not tell apart."""
    return lambda host, gpu: (
        host.most_vcpus >= request.vcpus
        and host.memory_mib >= request.memory_mib
        and (accept is None or accept(host, gpu))
    )


def _why(request: Request, host: FleetHost, gpus: Sequence[Gpu], spent: Amounts) -> str:
    more = (need.words_of_place(gpus, spent) for need in request.needs)
    watched = "nothing that is not on watch takes it" if _is_watched(gpus) else None
    return "; ".join([_why_there(request, host, gpus), *filter(None, (watched, *more))])


def _why_there(request: Request, host: FleetHost, gpus: Sequence[Gpu]) -> str:
    if gpus[0].whole:
        chosen = "the GPU" if len(gpus) == 1 else f"the {len(gpus)} GPUs"
        return f"takes {chosen} of {host.view.name} without which the most useful set stays free"
    cuts = " and ".join(dict.fromkeys(cut_words(gpu.cut_name) for gpu in gpus))
    names = " and ".join(gpu.view.gpu_id for gpu in gpus)
    if all(item.vm_id == request.vm_id for gpu in gpus for _, item in gpu.held):
        return f"no GPU in use has a better place; opens {names} of {host.view.name} for {cuts}"
    return f"fills up {names} of {host.view.name} ({cuts}), which wastes least"


def _occupied_of(request: Request, taken: Taken, spent: Amounts) -> Occupied:
    return Occupied(
        vm_id=request.vm_id, profile=request.profile, start=taken.start, size=taken.size, tenant=request.tenant,
        priority=request.priority, since_s=request.now_s,
        vcpus=request.vcpus, memory_mib=request.memory_mib, spent=spent,
        needs=tuple(need for need in request.needs if need.keeps_off),
    )  # fmt: skip


def _request_of(item: Occupied, places: int) -> Request:
    """What the VM asked for once, so far as it matters to others; ``places`` are the parts of GPUs that it has, or its
    whole GPUs."""
    return Request(
        vm_id=item.vm_id, profile=item.profile, count=1 if item.profile.startswith("gpu:") else places,
        vcpus=item.vcpus, memory_mib=item.memory_mib, tenant=item.tenant, needs=item.needs,
        priority=item.priority, now_s=item.since_s,
    )  # fmt: skip


__all__ = ["EMPTY", "HeldClaim", "PlacementEngine", "PlacementPlan", "demand_of", "whole_parts"]
