# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random
from dataclasses import replace

import pytest

from orchestrator.core.placement.engine import PlacementEngine
from orchestrator.core.placement.place import place_in
from orchestrator.core.placement.views import GpuView, HostView, Occupied, Request
from tests.unit.placement.fleets import ask, gpus, host

PROFILES = ("NVIDIA L4-4Q", "NVIDIA L4-6Q", "NVIDIA L4-24Q", "gpu:1", "gpu:2", "1g.10gb", "3g.40gb")
STEPS = 60


def picture(name: str, chance: random.Random) -> HostView:
    """A host with something on it, as some controller might have left it."""
    if chance.random() < 0.5:
        empty = host(name, gpus("L4", chance.choice((2, 4)), "mixed", "time_sliced"), vcpus=chance.choice((8, 24)))
    else:
        empty = host(name, gpus("H100 SXM5 80GB", 8, "mig", "time_sliced"), fabric=True, vcpus=48)
    scratch = PlacementEngine([empty])
    placed: dict[str, list[tuple[str, Occupied]]] = {}
    views = {gpu.gpu_id: gpu for gpu in empty.gpus}
    free = empty.free_vcpus
    for number in range(chance.randrange(6)):
        request = ask(f"{name}-{number}", chance.choice(PROFILES), vcpus=1)
        plan = scratch.plan(request)
        if plan is None:
            continue
        for part in scratch.take(request, plan).parts:
            held = Occupied(
                vm_id=request.vm_id, profile=request.profile, start=part.start, size=part.size, vcpus=1, tenant="t"
            )
            before: GpuView = views[part.gpu_id]
            views[part.gpu_id] = replace(before, cut=part.cut, occupied=(*before.occupied, held))
        free -= 1
        placed[request.vm_id] = []
    return replace(
        empty, gpus=tuple(views.values()), free_vcpus=free, vms=frozenset(placed), cordoned=chance.random() < 0.2
    )


def told(engine: PlacementEngine) -> list[object]:
    """All that somebody could notice of an engine; which of equally good places it takes is left open."""
    answers: list[object] = [best(engine, ask("x", profile, vcpus=2)) for profile in PROFILES]
    answers += [place_in(engine, ask("x", "NVIDIA L4-4Q", vcpus=2, host=name)) for name in ("h0", "h1", "gone")]
    counted = {demand: count for demand, count in engine.counts.items() if count}
    tables = {engine.fleet.tables[table].geometry.key: count for table, count in engine.fleet.usable.items() if count}
    return [*answers, counted, tables, engine.fleet.active, sorted(engine.vms)]


def best(engine: PlacementEngine, request: Request) -> object:
    plan = engine.plan(request)
    return place_in(engine, request) if plan is None else plan.score


@pytest.mark.parametrize("seed", range(12))
def test_an_engine_whose_hosts_were_replaced_answers_as_one_built_anew(seed: int) -> None:
    chance = random.Random(seed)
    engine = PlacementEngine()
    for _ in range(STEPS):
        name = f"h{chance.randrange(6)}"
        if chance.random() < 0.2:
            engine.remove_host(name)
        else:
            engine.replace_host(picture(name, chance))
        fresh = PlacementEngine([one.view for one in engine.fleet.hosts])
        assert told(engine) == told(fresh)
        assert [gpu.number for gpu in engine.fleet.gpus] == list(range(len(engine.fleet.gpus)))
