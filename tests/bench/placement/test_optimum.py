# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.core.placement.views import HostView
from tests.bench.placement.highs import maximise
from tests.bench.placement.moves.compaction import compact
from tests.bench.placement.moves.engine import MovingEngine
from tests.bench.placement.moves.stays import may_move
from tests.bench.placement.optimum import best_compaction
from tests.bench.placement.whole_program import WholeProgram
from tests.unit.placement.fleets import ask, broken_rules, gpus, host

MIG = ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb")
SIZES = ("NVIDIA L4-4Q", "NVIDIA L4-6Q", "NVIDIA L4-8Q", "NVIDIA L4-12Q")
SECONDS = 20.0


def scattered(
    seed: int, count: int, *, model: str = "H100 SXM5 80GB", cut: str = "mig", vcpus: int = 64
) -> MovingEngine:
    """Hosts with one GPU each, filled at random and emptied at random again."""
    rng = random.Random(seed)
    profiles = MIG if cut == "mig" else SIZES
    engine = MovingEngine([host(f"h{i}", gpus(model, 1, cut), vcpus=vcpus) for i in range(count)])
    for number in range(count * 4):
        request = ask(f"v{number}", rng.choice(profiles), vcpus=rng.choice((1, 2)), migratable=rng.random() < 0.95)
        plan = engine.plan(request)
        if plan is not None:
            engine.take(request, plan)
    for vm_id in rng.sample(sorted(engine.vms), k=int(len(engine.vms) * 0.6)):
        engine.release(vm_id)
    return engine


def most_freed(engine: MovingEngine) -> int:
    """By trying: the largest set of GPUs whose VMs all fit, in some order of places, into the other GPUs in use."""
    used = [gpu.number for gpu in engine.fleet.gpus if gpu.held]
    for size in range(len(used) - 1, 0, -1):
        for gone in combinations(used, size):
            vms = [item.vm_id for number in gone for _, item in engine.fleet.gpus[number].held]
            if all(may_move(engine.vms[vm].request) for vm in vms) and _fit(engine, vms, set(used) - set(gone)):
                return size
    return 0


def _fit(engine: MovingEngine, vms: list[str], targets: set[int]) -> bool:
    if not vms:
        return True
    request = engine.vms[vms[0]].request
    for number in sorted(targets):
        gpu = engine.fleet.gpus[number]
        if gpu.host.vcpus < request.vcpus or gpu.host.memory_mib < request.memory_mib:
            continue
        for step in gpu.table.steps(gpu.state, request.demand):
            state = (gpu.cut, gpu.state)
            gpu.state = engine.fleet.number_of(gpu.table, step.cut, step.choice.after)
            gpu.host.vcpus -= request.vcpus
            fits = _fit(engine, vms[1:], targets)
            gpu.host.vcpus += request.vcpus
            gpu.cut, gpu.state = state
            if fits:
                return True
    return False


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32), cut=st.sampled_from([("H100 SXM5 80GB", "mig"), ("L4", "mixed")]))
def test_small_fleets_are_compacted_as_far_as_trying_everything_gets(seed: int, cut: tuple[str, str]) -> None:
    engine = scattered(seed, 4, model=cut[0], cut=cut[1], vcpus=8)
    before, possible = engine.fleet.active, most_freed(engine)
    best = best_compaction(engine, maximise, SECONDS)
    assert best.plan.freed >= possible
    assert best.greedy or best.plan.freed == possible
    assert (best.gap, best.active) == (0, before - best.plan.freed)
    assert best.active >= best.minimum
    assert broken_rules(engine) == []


@settings(max_examples=8)
@given(seed=st.integers(0, 2**32))
def test_an_optimizer_is_never_worse_than_greedy_and_loses_no_vm(seed: int) -> None:
    greedy, engine = scattered(seed, 15), scattered(seed, 15)
    names = set(engine.vms)
    plain = compact(greedy)
    best = best_compaction(engine, maximise, SECONDS)
    assert (best.plan.freed, -len(best.plan.moves)) >= (plain.freed, -len(plain.moves))
    assert set(engine.vms) == names
    assert broken_rules(engine) == []


def test_equal_sizes_are_compacted_too() -> None:
    engine = MovingEngine([_sliced(f"h{i}") for i in range(3)])
    for number in range(12):
        request = ask(f"v{number}", "NVIDIA L40S-12Q")
        plan = engine.plan(request)
        assert plan is not None
        engine.take(request, plan)
    for number in (0, 1, 2, 4, 5, 8):
        engine.release(f"v{number}")
    best = best_compaction(engine, maximise, SECONDS)
    assert (best.active, best.minimum, best.gap) == (2, 2, 0)
    assert len(best.plan.moves) == 1
    assert broken_rules(engine) == []


def _sliced(name: str) -> HostView:
    return host(name, gpus("L40S", 1, "time_sliced"))


def test_without_time_the_greedy_plan_and_its_gap_are_given() -> None:
    greedy, engine = scattered(7, 12), scattered(7, 12)
    plain = compact(greedy)
    best = best_compaction(engine, lambda program, seconds: None, 0.0)
    assert best.greedy
    assert best.plan.freed == plain.freed
    assert best.gap == best.active - best.minimum


def test_a_program_without_columns_has_an_answer() -> None:
    answer = maximise(WholeProgram(), 1.0)
    assert answer is not None
    assert (answer.values, answer.proved) == ((), True)
