# SPDX-License-Identifier: Apache-2.0
"""Places that are taken now but could be cleared: which VMs would have to leave."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from orchestrator.core.geometry.build import EqualSizeCut
from orchestrator.core.geometry.cut import Taken
from orchestrator.core.placement.constraints import closed_to, is_other_gpu, lacks_what_it_needs
from orchestrator.core.placement.engine import demand_of
from orchestrator.core.placement.fleet import FleetHost, Gpu
from orchestrator.core.placement.index_set import IndexSet
from orchestrator.core.placement.state_table import EMPTY, Demand
from orchestrator.core.placement.views import Occupied, Request
from tests.bench.placement.moves.engine import MovingEngine
from tests.bench.placement.moves.layouts import NeedKey, Pattern
from tests.bench.placement.moves.stays import may_move

MAX_LEAVERS = 3
"""VMs that are moved for one request, at most."""
_MAX_OBSERVED = 8
"""GPUs of one layout that are looked at for one whose host has room."""


@dataclass(frozen=True, slots=True)
class Target:
    """A place to clear: who has to leave, and the slots (or whole GPUs) that must become free."""

    leavers: tuple[str, ...]
    cost: float
    """Slots that the leavers take; a little less on GPUs that are badly fragmented already."""
    gpus: tuple[Gpu, ...]
    mask: int
    """Slots to clear on the only GPU of ``gpus``; 0: everything on them."""


def need_key(engine: MovingEngine, request: Request) -> NeedKey:
    """The key of what a request needs; an example of it is kept."""
    key = (demand_of(request), request.vcpus, request.memory_mib)
    engine.layouts.examples.setdefault(key, _anywhere(request))
    return key


def _anywhere(request: Request) -> Request:
    return replace(request, needs=tuple(need for need in request.needs if need.near_gpus))


def combinations(engine: MovingEngine, request: Request) -> set[tuple[NeedKey, ...]]:
    """What has to leave together from a place, for all places that could be cleared; a hint, owners are left out."""
    if request.whole_gpus:
        everywhere = targets(engine, request, MAX_LEAVERS, frozenset())
        return {tuple(sorted(need_key(engine, engine.vms[v].request) for v in t.leavers)) for t in everywhere}
    demand = demand_of(request)
    return {
        pattern.needs
        for key, members in engine.layouts.gpus()
        for pattern in _patterns_of(engine, key, members, demand)
        if len(pattern.starts) <= MAX_LEAVERS
    }


def targets(
    engine: MovingEngine,
    request: Request,
    most: int,
    busy: frozenset[str],
    only: Container[tuple[NeedKey, ...]] | None = None,
) -> Iterator[Target]:
    """Targets with at most ``most`` leavers, all of them movable, none in ``busy``, and combined as in ``only``."""
    if request.count > 1:
        return
    if request.whole_gpus:
        for hosts in engine.layouts.hosts():
            host = next((h for h in hosts if _has_room(request, h)), None)
            if host is not None:
                yield from _on_host(engine, request, host, most, busy)
        return
    all_gpus = engine.fleet.gpus
    for key, members in engine.layouts.gpus():
        patterns = [
            pattern
            for pattern in _patterns_of(engine, key, members, demand_of(request))
            if len(pattern.starts) <= most and (only is None or pattern.needs in only)
        ]
        if patterns:
            named = (all_gpus[number] for number in members if not _asked_elsewhere(request, all_gpus[number]))
            found = next((g for g in islice(named, _MAX_OBSERVED) if _has_room(request, g.host)), None)
            if found is not None:
                yield from _on_gpu(engine, found, patterns, busy)


def _asked_elsewhere(request: Request, gpu: Gpu) -> bool:
    return is_other_gpu(request, gpu) or lacks_what_it_needs(request, gpu.host.view)


def _patterns_of(engine: MovingEngine, key: Hashable, members: IndexSet, demand: Demand) -> tuple[Pattern, ...]:
    """What follows from a layout alone is worked out once."""
    known = engine.layouts.patterns
    patterns = known.get((key, demand))
    if patterns is None:
        patterns = tuple(_patterns(engine, engine.fleet.gpus[members.smallest()], demand))
        known[key, demand] = patterns
    return patterns


def _patterns(engine: MovingEngine, gpu: Gpu, demand: Demand) -> Iterator[Pattern]:
    here = gpu.table.cuts[gpu.cut]
    size = float(sum(taken.size for taken, _ in gpu.held))
    fragments = engine.scores.fragments(gpu.table, gpu.cut, gpu.table.states[gpu.state][1])
    other_cut = False
    for step in gpu.table.steps(EMPTY, demand):
        if step.cut == gpu.cut and step.choice.mask and not isinstance(here, EqualSizeCut):
            mask = step.choice.mask
            leavers = [pair for pair in gpu.held if mask >> pair[0].start & ((1 << pair[0].size) - 1)]
            leavers = leavers or [pair for pair in gpu.held if "+" in pair[0].shape]
            cost = sum(taken.size for taken, _ in leavers) - fragments / (gpu.table.total_mib * 2)
            yield _pattern(engine, leavers, cost, mask)
        elif step.cut != gpu.cut and not other_cut:
            other_cut = True
            yield _pattern(engine, gpu.held, size + 0.5, 0)


def _pattern(engine: MovingEngine, leavers: Sequence[tuple[Taken, Occupied]], cost: float, mask: int) -> Pattern:
    requests = [engine.vms[item.vm_id].request for _, item in leavers if item.vm_id in engine.vms]
    needs = tuple(sorted(need_key(engine, request) for request in requests))
    return Pattern(tuple(taken.start for taken, _ in leavers), needs, cost, mask)


def _on_gpu(engine: MovingEngine, gpu: Gpu, patterns: Iterable[Pattern], busy: frozenset[str]) -> Iterator[Target]:
    owners = {taken.start: item.vm_id for taken, item in gpu.held}
    for pattern in patterns:
        if pattern.starts:
            starts = pattern.starts if pattern.mask else tuple(owners)
            leavers = tuple(dict.fromkeys(owners[start] for start in starts))
            if leavers and _movable(engine, leavers, busy):
                yield Target(leavers, pattern.cost, (gpu,), pattern.mask)


def _has_room(request: Request, host: FleetHost) -> bool:
    named = request.host is None or request.host in {host.view.host_id, host.view.name}
    return named and host.most_vcpus >= request.vcpus and host.memory_mib >= request.memory_mib


def _movable(engine: MovingEngine, vm_ids: Iterable[str], busy: frozenset[str]) -> bool:
    for vm_id in vm_ids:
        held = engine.vms.get(vm_id)
        if held is None or vm_id in busy or not may_move(held.request) or held.request.count > 1:
            return False
    return True


def _on_host(
    engine: MovingEngine, request: Request, host: FleetHost, most: int, busy: frozenset[str]
) -> Iterator[Target]:
    board = engine.fleet.boards[host.board].cut
    if request.profile not in board.shapes:
        return
    for choice in board.choices(closed_to(request, host), request.profile):
        gpus = tuple(gpu for gpu in host.gpus if choice.mask >> gpu.position & 1)
        leavers = tuple(dict.fromkeys(item.vm_id for gpu in gpus for _, item in gpu.held))
        if leavers and len(leavers) <= most and _movable(engine, leavers, busy):
            yield Target(leavers, float(sum(len(engine.vms[vm_id].gpus) for vm_id in leavers)), gpus, 0)
