# SPDX-License-Identifier: Apache-2.0
"""S6: placing a batch at once, compacting a fleet, draining hosts.

Plans wait for nothing, so what is measured is the processor's time, as in S7.
"""

from __future__ import annotations

import time

from tests.bench.placement.batch import place_batch
from tests.bench.placement.ceiling import Ceiling
from tests.bench.placement.fleets import geometry, single_gpu_hosts
from tests.bench.placement.highs import maximise
from tests.bench.placement.measured import MeasuredSimulation
from tests.bench.placement.moves.compaction import compact, drain
from tests.bench.placement.moves.engine import MovingEngine
from tests.bench.placement.optimum import best_compaction
from tests.bench.placement.policies import PolicyEngine, PolicyName
from tests.bench.placement.rows import Row, rows_of
from tests.bench.placement.suites_online import H100, SEEDS
from tests.bench.placement.workloads import MIG_MIXES, arrivals, mig_kinds

OPTIMIZER_SECONDS = 20.0
POLICIES: tuple[PolicyName, ...] = ("vgpuctl", "best_fit", "first_fit", "spread", "max_capability", "fgd")


def measure(scale: float) -> list[Row]:
    rows: list[Row] = []
    for mix in MIG_MIXES:
        rows += _batch(mix, int(10_000 * min(scale, 1.0)))
    for load in (0.5, 0.7, 0.85):
        for policy in POLICIES:
            for seed in SEEDS:
                rows += _compaction(load, policy, seed)
    return rows


def _batch(mix: str, count: int) -> list[Row]:
    """All VMs known at once: biggest first, so every policy that fills GPUs is near the minimum."""
    stream = list(arrivals(mig_kinds(mix), slots=8e9, load=1.0, count=count, seed=SEEDS[0]))
    stream.sort(key=lambda arrival: -arrival.kind.slots)
    rows: list[Row] = []
    for policy in POLICIES:
        engine = PolicyEngine(single_gpu_hosts(count, geometry(H100, "mig")), policy=policy)
        begin = time.process_time()
        if policy == "vgpuctl":
            place_batch(engine, [arrival.request for arrival in stream])
        else:
            for arrival in stream:
                plan = engine.plan(arrival.request)
                if plan is not None:
                    engine.take(arrival.request, plan)
        if len(engine.vms) != count:
            raise RuntimeError(f"{count - len(engine.vms)} VMs found no place among {count} GPUs")
        seconds = time.process_time() - begin
        minimum = Ceiling(engine.fleet, engine.counts).minimum_gpus()
        values = {"gap_gpus": engine.fleet.active - minimum, "active_over_min": engine.fleet.active / minimum,
                  "batch_seconds": seconds}  # fmt: skip
        rows += rows_of("S6", f"batch vms={count} mix={mix}", policy, values)
    return rows


def _settled(load: float, policy: PolicyName, seed: int) -> MovingEngine:
    simulation = MeasuredSimulation(single_gpu_hosts(200, geometry(H100, "mig")), policy=policy)
    for arrival in arrivals(mig_kinds("uniform"), slots=1600.0, load=load, count=6000, seed=seed):
        simulation.offer(arrival.request, arrival.depart_s)
    return simulation.engine


def _optimum(load: float, seed: int) -> list[Row]:
    """The same state as ``vgpuctl`` has, compacted by the optimizer."""
    engine = _settled(load, "vgpuctl", seed)
    before = engine.fleet.active
    begin = time.process_time()
    best = best_compaction(engine, maximise, OPTIMIZER_SECONDS)
    seconds = time.process_time() - begin
    return rows_of("S6", f"compaction load={load} gpus=200 mix=uniform", "vgpuctl_optimum", {
        "active_over_min_before": before / best.minimum, "active_over_min": best.active / best.minimum,
        "moves_per_freed_gpu": len(best.plan.moves) / best.plan.freed if best.plan.freed else None,
        "plan_seconds": seconds, "gap_gpus": best.gap,
    })  # fmt: skip


def _compaction(load: float, policy: PolicyName, seed: int) -> list[Row]:
    engine = _settled(load, policy, seed)
    rows = _optimum(load, seed) if policy == "vgpuctl" else []
    before = engine.fleet.active
    minimum = Ceiling(engine.fleet, engine.counts).minimum_gpus()
    begin = time.process_time()
    plan = compact(engine)
    seconds = time.process_time() - begin
    case = f"compaction load={load} gpus=200 mix=uniform"
    rows += rows_of("S6", case, policy, {
        "active_over_min_before": before / minimum, "active_over_min": engine.fleet.active / minimum,
        "moves_per_freed_gpu": len(plan.moves) / plan.freed if plan.freed else None, "plan_seconds": seconds,
    })  # fmt: skip
    used = [host for host in engine.fleet.hosts if host.used]
    begin = time.process_time()
    drained = drain(engine, used[0])
    left = {"drain_moves": len(drained.moves), "drain_left": len(drained.left),
            "drain_ms": 1000 * (time.process_time() - begin)}  # fmt: skip
    return rows + rows_of("S6", f"drain load={load} gpus=200 mix=uniform", policy, left)
