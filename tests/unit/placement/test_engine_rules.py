# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.core.placement.compaction import compact, drain
from orchestrator.core.placement.engine import Engine
from orchestrator.core.placement.quota import Quota
from orchestrator.core.placement.repack import make_room
from orchestrator.core.placement.scores import POLICIES, PolicyName
from orchestrator.core.placement.views import HostView
from tests.unit.placement.fleets import ask, broken_rules, gpus, host, settle

PROFILES = (
    "1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb", "1g.10gb+me", "NVIDIA H100XM-10C",
    "NVIDIA H100XM-40C", "NVIDIA L4-4Q", "NVIDIA L4-6Q", "NVIDIA L4-8Q", "NVIDIA L4-24Q", "gpu:1", "gpu:2", "gpu:4",
    "gpu:8", "NVIDIA RTX Pro 6000 Blackwell DC-1-12Q",
)  # fmt: skip
QUOTAS = {"small": Quota(vms=5, vcpus=12)}


def fleet() -> list[HostView]:
    return [
        *(host(f"h{i}", gpus("H100 SXM5 80GB", 8, "mig", "time_sliced"), fabric=True, vcpus=48) for i in range(2)),
        host("l4", gpus("L4", 4, "mixed", "time_sliced"), vcpus=24),
        host("pro", gpus("RTX PRO 6000 Blackwell Server Edition", 2, "mig"), vcpus=24),
        host("closed", gpus("L4", 2, "mixed"), cordoned=True),
    ]


def operate(engine: Engine, rng: random.Random, number: int) -> object:
    """One random operation; its visible result."""
    kind = rng.random()
    live = list(engine.vms)
    if kind < 0.35 and live:
        gone = rng.choice(live)
        engine.release(gone)
        return gone
    request = ask(
        f"v{number}", rng.choice(PROFILES), vcpus=rng.choice((0, 1, 2, 8)), count=rng.choice((1, 1, 1, 1, 2)),
        tenant=rng.choice(("t", "small")), host=rng.choice((None, None, None, "h1")),
        exclusive_gpu=rng.random() < 0.1, numa_strict=rng.random() < 0.1, migratable=rng.random() < 0.8,
        apart_from_vms=(rng.choice(live),) if live and rng.random() < 0.1 else (),
    )  # fmt: skip
    engine.see(request)
    done = settle(engine, request)
    if not done and kind > 0.8:
        moves = make_room(engine, request)
        return moves, settle(engine, request) if moves is not None else False
    return done, [(gpu.number, gpu.state) for gpu in engine.vms[request.vm_id].gpus] if done else None


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_operations_never_break_a_rule(policy: PolicyName, seed: int) -> None:
    engine, rng = Engine(fleet(), policy=policy, quotas=QUOTAS), random.Random(seed)
    for number in range(120):
        operate(engine, rng, number)
        if number % 10 == 0:
            assert broken_rules(engine) == []
    assert broken_rules(engine) == []


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_same_operations_give_the_same_answers(seed: int) -> None:
    def replay() -> list[object]:
        engine, rng = Engine(fleet(), quotas=QUOTAS), random.Random(seed)
        return [operate(engine, rng, number) for number in range(150)]

    assert replay() == replay()


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_compacting_and_draining_break_no_rule_and_lose_no_vm(seed: int) -> None:
    engine, rng = Engine(fleet(), quotas=QUOTAS), random.Random(seed)
    for number in range(120):
        operate(engine, rng, number)
    before, active = set(engine.vms), engine.fleet.active
    plan = compact(engine)
    assert engine.fleet.active == active - plan.freed
    drained = drain(engine, engine.fleet.hosts[0])
    assert set(engine.vms) == before
    assert broken_rules(engine) == []
    assert {vm for vm, held in engine.vms.items() if held.host is engine.fleet.hosts[0]} == set(drained.left)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_million_random_operations_never_break_a_rule() -> None:
    engine, rng = Engine(fleet(), quotas=QUOTAS), random.Random(20)
    for number in range(int(os.environ.get("VGPUCTL_SOAK_OPERATIONS", "1000000"))):
        operate(engine, rng, number)
        if number % 1000 == 0:
            assert broken_rules(engine) == []
