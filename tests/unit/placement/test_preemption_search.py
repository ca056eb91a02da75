# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.core.placement.engine import PlacementEngine
from orchestrator.core.placement.preemption import Trial, plan_preemption, slot_hours
from orchestrator.core.placement.views import Request
from tests.unit.placement.fleets import ask, gpus, host, settle

PROFILES = ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
NOW = 7200.0


def overloaded(seed: int) -> PlacementEngine:
    rng = random.Random(seed)
    engine = PlacementEngine([host(f"h{i}", gpus("H100 SXM5 80GB", 2, "mig"), vcpus=64) for i in range(2)])
    for number in range(30):
        since, priority = rng.uniform(0.0, NOW), rng.choice((0, 0, 1, 2))
        settle(
            engine, ask(f"v{number}", rng.choice(PROFILES), now_s=since, priority=priority, vcpus=rng.choice((1, 2)))
        )
    return engine


def cheapest_by_trying(engine: PlacementEngine, request: Request) -> float | None:
    costs = []
    for one in engine.fleet.hosts:
        for gpu in one.gpus:
            lower = [item.vm_id for _, item in gpu.held if engine.vms[item.vm_id].request.priority < request.priority]
            for count in range(1, len(lower) + 1):
                costs += [hours(engine, gone) for gone in combinations(lower, count) if fits(engine, request, gone)]
    return min(costs, default=None)


def hours(engine: PlacementEngine, gone: tuple[str, ...]) -> float:
    return sum(slot_hours(engine, vm_id, NOW) for vm_id in gone)


def fits(engine: PlacementEngine, request: Request, gone: tuple[str, ...]) -> bool:
    trial = Trial(engine)
    for vm_id in gone:
        trial.release(vm_id)
    found = engine.plan(request) is not None
    trial.undo()
    return found


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32), profile=st.sampled_from(PROFILES), priority=st.sampled_from([1, 2, 3]))
def test_the_search_that_ends_early_finds_what_trying_every_set_finds(seed: int, profile: str, priority: int) -> None:
    engine = overloaded(seed)
    request = ask("urgent", profile, priority=priority, now_s=NOW)
    if engine.plan(request) is not None:
        return
    found, best = plan_preemption(engine, request), cheapest_by_trying(engine, request)
    assert (found is None) == (best is None)
    if found is not None:
        assert found.slot_hours == pytest.approx(best)
        assert fits(engine, request, found.victims)
        assert plan_preemption(engine, request) == found


@settings(max_examples=20)
@given(
    seed=st.integers(0, 2**32),
    profile=st.sampled_from(PROFILES),
    count=st.sampled_from([2, 3]),
    vcpus=st.sampled_from([1, 60]),
)
def test_for_several_devices_the_victims_are_of_one_host_all_needed_and_found_wherever_stopping_all_would_do(
    seed: int, profile: str, count: int, vcpus: int
) -> None:
    engine = overloaded(seed)
    request = ask("urgent", profile, priority=2, now_s=NOW, count=count, vcpus=vcpus)
    if engine.plan(request) is not None:
        return
    lower = [tuple(vm_id for vm_id in one.vms if engine.vms[vm_id].request.priority < 2) for one in engine.fleet.hosts]
    found, before = plan_preemption(engine, request), set(engine.vms)
    assert (found is not None) == any(fits(engine, request, gone) for gone in lower)
    assert set(engine.vms) == before
    if found is not None:
        assert {engine.vms[vm_id].host.view.host_id for vm_id in found.victims} == {found.host_id}
        assert all(engine.vms[vm_id].request.priority < 2 for vm_id in found.victims)
        assert fits(engine, request, found.victims)
        assert not any(
            fits(engine, request, tuple(one for one in found.victims if one != vm_id)) for vm_id in found.victims
        )
        assert found.slot_hours == pytest.approx(hours(engine, found.victims))
        assert plan_preemption(engine, request) == found
