# SPDX-License-Identifier: Apache-2.0
"""S7: how long a decision takes when the fleet grows, in the steady state and in states made to hurt.

Decisions wait for nothing, so what is measured is the CPU time of the thread: the same as the time on the clock
when the machine is otherwise idle, and not spoilt by other programs when it is not.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Iterator
from dataclasses import replace

from orchestrator.core.placement.views import Request
from orchestrator.core.tenancy.quota import Limit
from orchestrator.simulate_placement.simulation import Latencies
from tests.bench.placement.fleets import eight_gpu_hosts, geometry
from tests.bench.placement.held import Held
from tests.bench.placement.moves.repack import make_room
from tests.bench.placement.policies import PolicyEngine, PolicyName
from tests.bench.placement.rows import Row, rows_of
from tests.bench.placement.suites_online import H100
from tests.bench.placement.workloads import MIG_PROFILES, MIG_SLICES

SIZES = (100, 1000, 10_000, 50_000)
FULL = 0.93
_DECISIONS = 20_000


def measure(scale: float) -> list[Row]:
    rows: list[Row] = []
    for hosts in SIZES:
        policies: tuple[PolicyName, ...] = ("vgpuctl",)
        if hosts <= 1000:
            policies = ("vgpuctl", "first_fit", "best_fit", "spread", "max_capability", "fgd")
        for policy in policies:
            rows += _at_size(hosts, policy, int(_DECISIONS * min(scale, 1.0)))
    return rows


def _requests(seed: int) -> Iterator[Request]:
    rng = random.Random(seed)
    number = 0
    while True:
        number += 1
        kind = rng.randrange(len(MIG_PROFILES))
        yield Request(
            vm_id=f"s{seed}v{number}", profile=MIG_PROFILES[kind], vcpus=2 * MIG_SLICES[kind],
            memory_mib=8192 * MIG_SLICES[kind], tenant=f"t{number % 50}",
        )  # fmt: skip


def _at_size(hosts: int, policy: PolicyName, decisions: int) -> list[Row]:
    engine = PolicyEngine(eight_gpu_hosts(hosts, geometry(H100, "mig"), vcpus=256), policy=policy)
    live = _fill(engine, hosts * 64 * FULL)
    gc.collect()
    gc.freeze()
    plan_times, commit_times, seconds = _steady(engine, live, decisions)
    case = f"hosts={hosts}"
    rows = rows_of("S7", case, policy, {
        **_percentiles(plan_times, "latency"), **_percentiles(commit_times, "commit"),
        "decisions_per_s": decisions / seconds,
    })  # fmt: skip
    if policy == "vgpuctl":
        rows += _repacks(engine, case)
        rows += _adversarial(engine, live, case)
    gc.unfreeze()
    return rows


def _fill(engine: PolicyEngine, slots: float) -> list[str]:
    live: list[str] = []
    used = 0.0
    for request in _requests(1):
        if used >= slots:
            break
        plan = engine.plan(request)
        if plan is not None:
            engine.take(request, plan)
            live.append(request.vm_id)
        used += MIG_SLICES[MIG_PROFILES.index(request.profile)]
    return live


def _steady(engine: PolicyEngine, live: list[str], decisions: int) -> tuple[Latencies, Latencies, float]:
    rng = random.Random(2)
    plan_times, commit_times, spent = Latencies(), Latencies(), 0
    source = _requests(3)
    for _ in range(decisions):
        request = next(source)
        begin = time.thread_time_ns()
        plan = engine.plan(request)
        planned = time.thread_time_ns()
        if plan is not None:
            engine.take(request, plan)
            done = time.thread_time_ns()
            commit_times.add(done - planned)
            spent += done - begin
            live.append(request.vm_id)
            at = rng.randrange(len(live))
            live[at], live[-1] = live[-1], live[at]
            engine.release(live.pop())
        else:
            spent += planned - begin
        plan_times.add(planned - begin)
    return plan_times, commit_times, spent / 1e9


def _percentiles(times: Latencies, name: str) -> dict[str, float | int | None]:
    return {
        f"{name}_p50_us": times.percentile_us(0.5),
        f"{name}_p99_us": times.percentile_us(0.99),
        f"{name}_p999_us": times.percentile_us(0.999),
    }


def _repacks(engine: PolicyEngine, case: str) -> list[Row]:
    """Searches for moves with every hole for the biggest profiles taken first."""
    number = 0
    filler = Request(vm_id="", profile=MIG_PROFILES[3], vcpus=0, memory_mib=0, tenant="t0")
    while True:
        number += 1
        request = replace(filler, vm_id=f"filler{number}")
        plan = engine.plan(request)
        if plan is None:
            break
        engine.take(request, plan)
    times, found = Latencies(), 0
    for attempt in range(200):
        request = replace(filler, vm_id=f"repack{attempt}")
        begin = time.thread_time_ns()
        moves = make_room(engine, request)
        times.add(time.thread_time_ns() - begin)
        if moves is not None:
            found += 1
            plan = engine.plan(request)
            if plan is not None:
                engine.take(request, plan)
    return rows_of("S7", f"{case} state=repack", "vgpuctl_moves", {
        "latency_p50_us": times.percentile_us(0.5), "latency_p99_us": times.percentile_us(0.99), "found": found,
    })  # fmt: skip


def _adversarial(engine: PolicyEngine, live: list[str], case: str) -> list[Row]:
    over = Request(vm_id="over", profile=MIG_PROFILES[0], vcpus=1, memory_mib=1, tenant="full")
    rows = _refusals(engine, over, f"{case} state=quota", Held(Limit(tenant="full", resource="vms", amount=0)))
    thirsty = Request(vm_id="thirsty", profile=MIG_PROFILES[0], vcpus=100_000, memory_mib=1, tenant="t0")
    rows += _refusals(engine, thirsty, f"{case} state=cpu")
    number = 0
    for profile in reversed(MIG_PROFILES):
        while True:
            number += 1
            request = Request(vm_id=f"full{number}", profile=profile, vcpus=0, memory_mib=0, tenant="t0")
            plan = engine.plan(request)
            if plan is None:
                break
            engine.take(request, plan)
    rows += _refusals(engine, Request(vm_id="late", profile=MIG_PROFILES[0], vcpus=1, memory_mib=1, tenant="t0"),
                      f"{case} state=full")  # fmt: skip
    return rows


def _refusals(engine: PolicyEngine, request: Request, case: str, held: Held | None = None) -> list[Row]:
    times = Latencies()
    for _ in range(2000):
        begin = time.thread_time_ns()
        refused = (held is not None and held.refuses(request)) or engine.plan(request) is None
        times.add(time.thread_time_ns() - begin)
        if not refused:
            raise RuntimeError(f"{case}: {request.profile} was placed in a fleet made to refuse it")
    return rows_of("S7", case, "vgpuctl", _percentiles(times, "latency"))
