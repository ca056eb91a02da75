# SPDX-License-Identifier: Apache-2.0
"""Which VMs of lower priority to stop for one of higher priority: those whose loss wastes the fewest slot-hours."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from orchestrator.core.geometry.build import EqualSizeCut
from orchestrator.core.geometry.cut import Taken
from orchestrator.core.placement.constraints import closed_to, host_obstacles, in_the_way, is_other_gpu, shortage
from orchestrator.core.placement.engine import HeldClaim, PlacementEngine, PlacementPlan, demand_of
from orchestrator.core.placement.fleet import FleetHost, Gpu
from orchestrator.core.placement.rules import YIELDED
from orchestrator.core.placement.rules.named import on_host
from orchestrator.core.placement.rules.rule import Resource
from orchestrator.core.placement.state_table import EMPTY, StateStep
from orchestrator.core.placement.views import HostView, Occupied, Placement, Request

_SECONDS = 3600.0
_MAY_GO, _STAYS = 0, 1
_MAX_HOSTS = 64
"""Hosts that are looked at for several devices, once it is known that some host will do."""


@dataclass(frozen=True, slots=True)
class Preemption:
    """Stop ``victims`` and the request fits. ``slot_hours``: GiB of GPU memory times hours that they have run."""

    victims: tuple[str, ...]
    slot_hours: float
    host_id: str


def plan_preemption(engine: PlacementEngine, request: Request) -> Preemption | None:
    """The cheapest set of victims on one GPU (on one host, for whole GPUs and several vGPUs); None when priority does
    not help.

    Only hosts count that have, or get back from the victims, the vCPUs and memory. For CPUs and memory that are counted
    by NUMA node VMs on other GPUs of the host are victims too, the cheapest that give what is short. VMs are gone
    through from the one whose loss is cheapest: a set costs no less than each VM in it, so the search ends where one VM
    costs more than the best set, and a fleet full of candidates costs one reading of each VM, not one at each set.
    """
    if not any(count for priority, count in engine.priorities.items() if priority < request.priority):
        return None
    lower = ((vm_id, held) for vm_id, held in engine.vms.items() if held.request.priority < request.priority)
    costs = sorted((slot_hours(engine, vm_id, request.now_s), vm_id) for vm_id, _ in lower)
    if request.count > 1:
        return _for_several(engine, request, costs)
    search, best, seen = _Sets(engine, request), None, set[int]()
    for cost, vm_id in costs:
        if best is not None and cost > best[0]:
            break
        for where in search.places_of(vm_id):
            if where.number not in seen:
                seen.add(where.number)
                best = min(filter(None, (best, search.cheapest(where))), default=None)
    return None if best is None else Preemption(best[-1], best[0], engine.fleet.hosts[best[2]].view.host_id)


def _for_several(engine: PlacementEngine, request: Request, costs: list[tuple[float, str]]) -> Preemption | None:
    """Host by host, that of the cheapest VM first. ``costs``: who may go, the cheapest first."""
    best: tuple[float, int, int, tuple[str, ...]] | None = None
    cheapest: dict[FleetHost, float] = {}
    for cost, vm_id in costs:
        cheapest.setdefault(engine.vms[vm_id].host, cost)
    for number, (host, cost) in enumerate(cheapest.items()):
        if best is not None and (cost > best[0] or number >= _MAX_HOSTS):
            break
        closed = _most_on(request, host) < request.count or _closed(request, host)
        victims = () if closed else _together(engine, request, host)
        if victims:
            hours = sum(slot_hours(engine, vm_id, request.now_s) for vm_id in victims)
            best = min(filter(None, (best, (hours, len(victims), host.number, victims))))
    return None if best is None else Preemption(best[-1], best[0], engine.fleet.hosts[best[2]].view.host_id)


def _most_on(request: Request, host: FleetHost) -> int:
    """At least as many devices as the host's GPUs hold, were nothing on them."""
    usable = [gpu.table for gpu in host.gpus if gpu.usable]
    cuts = ([(table.cuts[cut], shape) for cut, shape in table.options(request.demand)] for table in usable)
    return sum(max((cut.slots // max(1, cut.size(shape)) for cut, shape in options), default=0) for options in cuts)


def _together(engine: PlacementEngine, request: Request, host: FleetHost) -> tuple[str, ...]:
    """Who has to go from the host for all devices: place after place the cheapest set, and of those who is needed."""
    confined, trial, going = _kept_to(request, host.view.host_id), Trial(engine), list[str]()
    while engine.plan(confined) is None:
        more = _one_more(engine, confined, host)
        if not more:
            trial.undo()
            return ()
        for vm_id in more:
            trial.release(vm_id)
        going += more
    trial.undo()
    for vm_id in sorted(going, key=lambda vm: (-slot_hours(engine, vm, request.now_s), vm)):
        others = [vm for vm in going if vm != vm_id]
        if _fits_without(engine, confined, others):
            going = others
    return tuple(going)


def _kept_to(request: Request, host_id: str) -> Request:
    """The same on that host and no other."""
    return replace(request, needs=on_host(request.needs, host_id))


def _one_more(engine: PlacementEngine, request: Request, host: FleetHost) -> tuple[str, ...]:
    """Who makes room for one device more; where nobody does, the cheapest VM, for what else the host lacks."""
    needs = tuple(need for need in request.needs if not need.near_gpus)
    one = replace(request, count=1, vcpus=0, memory_mib=0, needs=needs)
    sets = _Sets(engine, one)
    cheapest = min(filter(None, (sets.cheapest(gpu) for gpu in host.gpus)), default=None)
    if cheapest is not None:
        return cheapest[-1]
    lower = [vm_id for vm_id in host.vms if vm_id in engine.vms and sets.are_lower([vm_id])]
    return tuple(sorted(lower, key=lambda vm_id: (slot_hours(engine, vm_id, request.now_s), vm_id))[:1])


def _fits_without(engine: PlacementEngine, request: Request, going: Iterable[str]) -> bool:
    trial = Trial(engine)
    for vm_id in going:
        trial.release(vm_id)
    fits = engine.plan(request) is not None
    trial.undo()
    return fits


def place_preempting(
    request: Request, hosts: Iterable[HostView], preemptible: Collection[str]
) -> tuple[Placement, Preemption] | None:
    """Where the request goes once some of ``preemptible`` have given their places back; None: not even then.

    Whoever has to go keeps its disk, so a host must have the disk's room already.
    """
    able = (host for host in hosts if not host.vms.isdisjoint(preemptible))
    engine = PlacementEngine(_divided(host, preemptible) for host in able)
    preemption = plan_preemption(engine, replace(request, priority=_STAYS))
    if preemption is None:
        return None
    for vm_id in preemption.victims:
        engine.release(vm_id)
    confined = _kept_to(request, preemption.host_id)
    plan = engine.plan(confined)
    return None if plan is None else (engine.take(confined, plan), preemption)


def _divided(host: HostView, preemptible: Collection[str]) -> HostView:
    """With two priorities only."""
    gpus = tuple(
        replace(
            gpu,
            occupied=tuple(
                replace(item, priority=_MAY_GO if item.vm_id in preemptible else _STAYS) for item in gpu.occupied
            ),
        )
        for gpu in host.gpus
    )
    return replace(host, gpus=gpus)


def slot_hours(engine: PlacementEngine, vm_id: str, now_s: float) -> float:
    """GiB of GPU memory times hours a VM has had so far: the work that stopping it may throw away."""
    held = engine.vms[vm_id]
    if held.gib is None:
        held.gib = sum(_gib(gpu, vm_id) for gpu in dict.fromkeys(held.gpus))
    return held.gib * max(0.0, now_s - held.request.now_s) / _SECONDS


_Room = tuple[Sequence[Gpu], Sequence[str]]
"""GPUs, and who has to leave them."""
_Found = tuple[float, int, int, int, tuple[str, ...]]
"""(slot-hours, victims, host, place there, who). The least is taken: equal costs are decided alike each time."""


class _Sets:
    """The sets of VMs that make room for one request."""

    def __init__(self, engine: PlacementEngine, request: Request) -> None:
        self.engine, self.request = engine, request
        self._steps: dict[int, list[StateStep]] = {}

    def places_of(self, vm_id: str) -> tuple[FleetHost, ...] | tuple[Gpu, ...]:
        """Where room could be made by stopping the VM: its GPUs, or its host for whole GPUs."""
        held = self.engine.vms[vm_id]
        if self.request.whole_gpus:
            return (held.host,)
        return tuple(held.host.gpus) if self.request.near_gpus else held.gpus

    def cheapest(self, where: FleetHost | Gpu) -> _Found | None:
        host = where if isinstance(where, FleetHost) else where.host
        if _closed(self.request, host):
            return None
        sets = self._on_host(where) if isinstance(where, FleetHost) else self._on_gpu(where)
        candidates = []
        for number, (gpus, vm_ids) in enumerate(sets):
            victims = self._with_strangers(where, vm_ids)
            if not self.are_lower(victims):
                continue
            victims = self._with_helpers(host, gpus, victims)
            if victims and self._suffices(host, gpus, victims):
                hours = sum(slot_hours(self.engine, vm_id, self.request.now_s) for vm_id in victims)
                candidates.append((hours, len(victims), host.number, number, victims))
        return min(candidates, default=None)

    def _with_strangers(self, where: FleetHost | Gpu, leaving: Iterable[str]) -> tuple[str, ...]:
        """And those with whom the GPU may not be shared. On a host whole GPUs are emptied anyway."""
        if isinstance(where, FleetHost):
            return tuple(dict.fromkeys(leaving))
        cut = where.table.cuts[where.cut].name if where.cut >= 0 else None
        others = in_the_way(self.request, [item for _, item in where.held], where.table.geometry, cut)
        return tuple(dict.fromkeys((*leaving, *others)))

    def are_lower(self, victims: Iterable[str]) -> bool:
        """Whether each of them gives way to the request."""
        vms, most = self.engine.vms, self.request.priority
        return all(vm_id in vms and vms[vm_id].request.priority < most for vm_id in victims)

    def _short(self, host: FleetHost, gpus: Sequence[Gpu], leaving: Iterable[str]) -> tuple[int, ...] | None:
        """What is short when these have left; None: it may not be there."""
        held = (self.engine.vms[vm_id] for vm_id in leaving)
        given = ((vm.request.vcpus, vm.request.memory_mib, vm.spent) for vm in held)
        return shortage(self.request, host, gpus, given)

    def _suffices(self, host: FleetHost, gpus: Sequence[Gpu], leaving: Iterable[str]) -> bool:
        short = self._short(host, gpus, leaving)
        return short is not None and not any(short)

    def _with_helpers(self, host: FleetHost, gpus: Sequence[Gpu], victims: tuple[str, ...]) -> tuple[str, ...]:
        """And the cheapest others of the host that give what it is short of, where that is counted by node. Who turns
        out to be needless for it stays."""
        short = self._short(host, gpus, victims) if self.request.near_gpus else None
        if short is None or not any(short):
            return victims
        neighbours = {item.vm_id for gpu in host.gpus for _, item in gpu.held} - set(victims)
        cost = {vm_id: (slot_hours(self.engine, vm_id, self.request.now_s), vm_id) for vm_id in self._lower(neighbours)}
        helpers: list[str] = []
        for vm_id in sorted(cost, key=lambda vm: cost[vm]):
            less = self._short(host, gpus, (*victims, *helpers, vm_id))
            if less is not None and less != short:
                helpers, short = [*helpers, vm_id], less
        for vm_id in reversed(helpers):
            others = [vm for vm in helpers if vm != vm_id]
            if self._short(host, gpus, (*victims, *others)) == short:
                helpers = others
        return (*victims, *helpers)

    def _lower(self, vm_ids: Iterable[str]) -> Iterator[str]:
        return (vm_id for vm_id in vm_ids if self.are_lower([vm_id]))

    def _on_host(self, host: FleetHost) -> Iterator[_Room]:
        board = self.engine.fleet.boards[host.board].cut
        if self.request.profile not in board.shapes:
            return
        for choice in board.choices(closed_to(self.request, host), self.request.profile):
            gpus = [gpu for gpu in host.gpus if choice.mask >> gpu.position & 1]
            yield gpus, [item.vm_id for gpu in gpus for _, item in gpu.held]

    def _on_gpu(self, gpu: Gpu) -> Iterator[_Room]:
        if not gpu.usable or is_other_gpu(self.request, gpu):
            return
        everyone = [item.vm_id for _, item in gpu.held]
        if self.request.near_gpus and not gpu.whole and gpu.table.steps(gpu.state, demand_of(self.request)):
            yield [gpu], []  # it has room: what is short is something else
        for step in self._steps_of(gpu):
            if gpu.whole or step.cut != gpu.cut:
                yield [gpu], everyone
            elif step.choice.mask:
                mask = step.choice.mask
                yield [gpu], [item.vm_id for taken, item in gpu.held if mask >> taken.start & ((1 << taken.size) - 1)]
            elif isinstance(gpu.table.cuts[gpu.cut], EqualSizeCut):
                yield from (([gpu], [vm_id]) for vm_id in everyone)
            else:
                yield [gpu], everyone

    def _steps_of(self, gpu: Gpu) -> list[StateStep]:
        table = gpu.table
        if table.number not in self._steps:
            self._steps[table.number] = table.steps(EMPTY, demand_of(self.request))
        return self._steps[table.number]


def _gib(gpu: Gpu, vm_id: str) -> float:
    slot = gpu.table.total_mib if gpu.whole else gpu.table.cuts[gpu.cut].slot_mib
    return sum(taken.size for taken, item in gpu.held if item.vm_id == vm_id) * slot / 1024


def _closed(request: Request, host: FleetHost) -> bool:
    """Whether a rule keeps the request off the host that no victim could lift."""
    return not YIELDED.issuperset(host_obstacles(request, host))


@dataclass(frozen=True, slots=True)
class _GpuBefore:
    gpu: Gpu
    cut: int
    state: int
    whole: bool
    held: tuple[tuple[Taken, Occupied], ...]


@dataclass(frozen=True, slots=True)
class _HostBefore:
    host: FleetHost
    vcpus: int
    memory_mib: int
    free: dict[Resource, int]
    vms: frozenset[str]


class Trial:
    """Applies releases and moves to the engine and remembers how to undo them."""

    def __init__(self, engine: PlacementEngine) -> None:
        self.engine = engine
        self._log: list[tuple[str, HeldClaim | None, tuple[_GpuBefore, ...], tuple[_HostBefore, ...]]] = []

    @property
    def mark(self) -> int:
        """A point that ``undo`` can go back to."""
        return len(self._log)

    def release(self, vm_id: str) -> None:
        """Give back what a VM has."""
        held = self.engine.vms[vm_id]
        self._note(vm_id, held, list(held.gpus))
        self.engine.release(vm_id)

    def carry(self, request: Request, plan: PlacementPlan) -> Placement:
        """Take the VM of the request from where it is to ``plan``, which must come from the present state."""
        held = self.engine.vms[request.vm_id]
        self._note(request.vm_id, held, [*held.gpus, *(self.engine.fleet.gpus[number] for number, _ in plan.gpus)])
        self.engine.release(request.vm_id)
        return self.engine.take(request, plan)

    def _note(self, vm_id: str, held: HeldClaim, gpus: list[Gpu]) -> None:
        seen = dict.fromkeys(gpus)
        before = tuple(_GpuBefore(g, g.cut, g.state, g.whole, tuple(g.held)) for g in seen)
        hosts = tuple(
            _HostBefore(host, host.vcpus, host.memory_mib, dict(host.free), frozenset(host.vms))
            for host in dict.fromkeys(gpu.host for gpu in seen)
        )
        self._log.append((vm_id, held, before, hosts))

    def undo(self, mark: int = 0) -> None:
        """Go back to ``mark``."""
        while len(self._log) > mark:
            vm_id, held, gpus, hosts = self._log.pop()
            if held is not None:
                self._put_back(vm_id, held)
            for gpu in gpus:
                self.engine.fleet.unindex_gpu(gpu.gpu, gpu.gpu.state)
                gpu.gpu.cut, gpu.gpu.state, gpu.gpu.whole = gpu.cut, gpu.state, gpu.whole
                gpu.gpu.held = list(gpu.held)
            for host in hosts:
                now = host.host
                now.vcpus, now.memory_mib = host.vcpus, host.memory_mib
                now.free, now.vms = dict(host.free), set(host.vms)
                self.engine.fleet.reindex(now)

    def _put_back(self, vm_id: str, held: HeldClaim) -> None:
        now = self.engine.vms.get(vm_id)
        if now is not None:
            self.engine.count(now.request, -1)
        self.engine.count(held.request, 1)
        self.engine.vms[vm_id] = held
