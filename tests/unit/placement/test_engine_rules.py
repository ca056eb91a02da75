# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.core.placement.engine import PlacementEngine
from tests.bench.placement.moves.compaction import compact, drain
from tests.bench.placement.policies import POLICIES, PolicyName
from tests.unit.placement.fleets import ask, broken_rules, gpus, having, host, settle
from tests.unit.placement.random_operations import Exercise

_PER_RUN = 10_000
"""Random operations on one fleet before the next one begins."""


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_random_operations_never_break_a_rule(policy: PolicyName, seed: int) -> None:
    Exercise(seed, policy).run(120, check_every=10)


@settings(max_examples=10)
@given(seed=st.integers(0, 2**32))
def test_the_same_operations_give_the_same_answers(seed: int) -> None:
    def replay() -> list[object]:
        exercise = Exercise(seed)
        return [exercise.operate() for _ in range(150)]

    assert replay() == replay()


@settings(max_examples=10)
@given(seed=st.integers(0, 2**32))
def test_compacting_and_draining_break_no_rule_and_lose_no_vm(seed: int) -> None:
    exercise = Exercise(seed)
    engine = exercise.engine
    exercise.run(120, check_every=120)
    before, active = set(engine.vms), engine.fleet.active
    plan = compact(engine)
    assert engine.fleet.active == active - plan.freed
    drained = drain(engine, engine.fleet.hosts[0])
    assert set(engine.vms) == before
    assert broken_rules(engine) == []
    assert {vm for vm, held in engine.vms.items() if held.host is engine.fleet.hosts[0]} == set(drained.left)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_million_random_operations_never_break_a_rule(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = int(os.environ.get("VGPUCTL_SOAK_OPERATIONS", "1000000"))
    counts: Counter[str] = Counter()

    @settings(max_examples=wanted // _PER_RUN, derandomize=False, database=None)
    @given(seed=st.integers(0, 2**32))
    def operations(seed: int) -> None:
        exercise = Exercise(seed)
        exercise.run(_PER_RUN, check_every=500)
        counts.update({"operations": _PER_RUN}, **exercise.ledger.counts)

    operations()
    with capsys.disabled():
        print(f"\n{', '.join(f'{number} {what}' for what, number in counts.items())}")
    assert counts["operations"] >= wanted


def test_more_different_amounts_than_hosts_are_told_apart_by_over_commit_no_host() -> None:
    engine = PlacementEngine([host(f"h{i}", gpus("H100 SXM5 80GB", 8, "mig"), memory_mib=30_000) for i in range(2)])
    for number in range(80):
        engine.plan(ask("what-if", "1g.10gb", memory_mib=number + 1))
    placed = [settle(engine, ask(f"v{number}", "1g.10gb", memory_mib=9000)) for number in range(8)]
    assert placed == [True] * 6 + [False] * 2
    assert broken_rules(engine) == []


def test_a_whole_gpu_that_needs_its_numa_node_gets_no_gpu_whose_node_has_no_vcpus_left() -> None:
    engine = PlacementEngine([having(host("h", gpus("L4", 4, "mixed"), vcpus=24), pinnable=24)])
    placed = [settle(engine, ask(f"v{number}", "gpu:1", vcpus=0, pinned=8, numa_strict=True)) for number in range(4)]
    assert placed == [True, True, False, False]
    assert broken_rules(engine) == []
