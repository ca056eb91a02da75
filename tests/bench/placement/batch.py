# SPDX-License-Identifier: Apache-2.0
"""Placing many VMs that are known at once: onto the fewest empty GPUs where that can be constructed."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.core.placement.engine import PlacementEngine, PlacementPlan, demand_of
from orchestrator.core.placement.fleet import Gpu
from orchestrator.core.placement.state_table import StateStep
from orchestrator.core.placement.views import Placement, Request
from tests.bench.placement.minimum import seven_slice_kind
from tests.bench.placement.pack import pack_seven_slice


def place_batch(engine: PlacementEngine, requests: Iterable[Request]) -> dict[str, Placement]:
    """Take as many requests as fit; placements by VM id. Those left out found no place.

    MIG profiles of the 7-slice family go onto empty GPUs in a provably smallest number; everything else, and
    what its host's CPU or memory cannot carry, is placed one by one, biggest first.
    """
    waiting = sorted(requests, key=lambda request: -_mib(engine, request))
    placed = _packed(engine, waiting)
    for request in waiting:
        if request.vm_id not in placed:
            plan = engine.plan(request)
            if plan is not None:
                placed[request.vm_id] = engine.take(request, plan)
    return placed


def _mib(engine: PlacementEngine, request: Request) -> int:
    if request.whole_gpus:
        return request.whole_gpus << 24
    sizes = [
        table.cuts[cut].size(shape) * table.cuts[cut].slot_mib
        for table in engine.fleet.tables
        for cut, shape in table.options(demand_of(request))
    ]
    return min(sizes, default=0)


def _packed(engine: PlacementEngine, waiting: list[Request]) -> dict[str, Placement]:
    placed: dict[str, Placement] = {}
    for table in engine.fleet.tables:
        kinds: list[list[tuple[Request, int, str]]] = [[] for _ in range(6)]
        for request in waiting:
            options = table.options(demand_of(request))
            plain = request.count == 1 and not request.is_filtered and len(options) == 1
            kind = seven_slice_kind(table.cuts[options[0][0]], options[0][1]) if plain else None
            if kind is not None and request.vm_id not in placed:
                kinds[kind].append((request, *options[0]))
        empty = [
            gpu for gpu in engine.fleet.gpus
            if gpu.table is table and not gpu.held and gpu.usable and not gpu.host.view.cordoned
        ]  # fmt: skip
        one, double, two, three, four, seven = (len(found) for found in kinds)
        layouts = pack_seven_slice((one, double, two, three, four, seven))
        if len(layouts) > len(empty):
            continue
        for gpu, layout in zip(empty, layouts, strict=False):
            for kind, start in layout:
                request, cut, shape = kinds[kind].pop()
                placement = _take_at(engine, gpu, request, (cut, shape), start)
                if placement is not None:
                    placed[request.vm_id] = placement
    return placed


def _take_at(
    engine: PlacementEngine, gpu: Gpu, request: Request, option: tuple[int, str], start: int
) -> Placement | None:
    cut, shape = option
    host = gpu.host
    if request.vcpus > host.vcpus or request.memory_mib > host.memory_mib:
        return None
    here = gpu.table.cuts[cut]
    state = here.empty if gpu.cut < 0 else gpu.table.states[gpu.state][1]
    choice = next((choice for choice in here.choices(state, shape) if choice.start == start), None)
    if choice is None:
        return None
    return engine.take(request, PlacementPlan(host.number, ((gpu.number, StateStep(cut, shape, choice)),), 0.0))
