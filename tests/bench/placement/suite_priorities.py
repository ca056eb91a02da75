# SPDX-License-Identifier: Apache-2.0
"""S8: priorities with preemption, and quotas: who gets in, what it costs the others, whether a limit is ever passed."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import replace

from orchestrator.core.placement.engine import PlacementEngine
from orchestrator.core.placement.preemption import Preemption, plan_preemption, slot_hours
from orchestrator.core.placement.views import Request
from orchestrator.core.tenancy.quota import Limit
from tests.bench.placement.fleets import geometry, single_gpu_hosts
from tests.bench.placement.held import Held
from tests.bench.placement.policies import PolicyEngine
from tests.bench.placement.rows import Row, rows_of
from tests.bench.placement.suites_online import H100, SEEDS
from tests.bench.placement.workloads import Arrival, arrivals, mig_kinds

_URGENT_EVERY = 5
_GPUS = 50


def measure(scale: float) -> list[Row]:
    rows: list[Row] = []
    choosers: dict[str, Callable[[PlacementEngine, Request], Preemption | None]] = {
        "vgpuctl": plan_preemption, "first_fit": _first_victims,
    }  # fmt: skip
    for load in (0.95, 1.3):
        for seed in SEEDS:
            for policy, chooser in choosers.items():
                rows += _priorities(load, seed, policy, chooser, int(4000 * scale))
            rows += _quotas(load, seed, int(6000 * scale))
    return rows


def _stream(load: float, seed: int, count: int) -> Iterator[Arrival]:
    stream = arrivals(mig_kinds("uniform"), slots=8.0 * _GPUS, load=load, count=count, seed=seed)
    for number, arrival in enumerate(stream):
        urgent = number % _URGENT_EVERY == 0
        yield replace(arrival, request=replace(arrival.request, priority=10 if urgent else 0))


def _first_victims(engine: PlacementEngine, request: Request) -> Preemption | None:
    """For comparison: stop VMs of lower priority one after another, oldest first, until the request fits."""
    lower = [vm for vm, held in engine.vms.items() if held.request.priority < request.priority]
    probe = [(vm, engine.vms[vm].host.view.host_id) for vm in lower]
    by_host: dict[str, list[str]] = {}
    for vm, host in probe:
        by_host.setdefault(host, []).append(vm)
    for host, victims in by_host.items():
        if all(
            held.request.priority < request.priority for held in engine.vms.values() if held.host.view.host_id == host
        ):
            hours = sum(slot_hours(engine, vm, request.now_s) for vm in victims)
            return Preemption(tuple(victims), hours, host)
    return None


def _priorities(
    load: float, seed: int, policy: str, chooser: Callable[[PlacementEngine, Request], Preemption | None], count: int
) -> list[Row]:
    engine = PolicyEngine(single_gpu_hosts(_GPUS, geometry(H100, "mig")))
    leaving: list[tuple[float, str]] = []
    offered, accepted, preemptions, hours, victims = [0, 0], [0, 0], 0, 0.0, 0
    for arrival in _stream(load, seed, count):
        request = arrival.request
        while leaving and leaving[0][0] <= request.now_s:
            gone = heapq.heappop(leaving)[1]
            if gone in engine.vms:
                engine.release(gone)
        urgent = int(request.priority > 0)
        offered[urgent] += 1
        plan = engine.plan(request)
        if plan is None and urgent:
            preemption = chooser(engine, request)
            if preemption is not None:
                for vm_id in preemption.victims:
                    engine.release(vm_id)
                preemptions, hours, victims = (
                    preemptions + 1,
                    hours + preemption.slot_hours,
                    victims + len(preemption.victims),
                )
                plan = engine.plan(request)
        if plan is not None:
            accepted[urgent] += 1
            engine.take(request, plan)
            heapq.heappush(leaving, (arrival.depart_s, request.vm_id))
    return rows_of("S8", f"load={load} gpus={_GPUS} urgent=0.2", policy, {
        "acceptance_urgent": 100 * accepted[1] / offered[1], "acceptance_normal": 100 * accepted[0] / offered[0],
        "victims_per_preemption": victims / max(1, preemptions),
        "victim_gib_hours_per_preemption": hours / max(1, preemptions),
    })  # fmt: skip


def _quotas(load: float, seed: int, count: int) -> list[Row]:
    """Three tenants offer equal loads; one may have 20 VMs. Its limit must hold, the others must not starve."""
    limit = 20
    engine = PlacementEngine(single_gpu_hosts(_GPUS, geometry(H100, "mig")))
    held = Held(Limit(tenant="a", resource="vms", amount=limit))
    shares = {"a": 1.0, "b": 1.0, "c": 1.0}
    stream = arrivals(
        mig_kinds("uniform"), slots=8.0 * _GPUS, load=load, count=count, seed=seed, tenants=shares,
    )  # fmt: skip
    leaving: list[tuple[float, str, Request]] = []
    offered, accepted, most, needless = dict.fromkeys(shares, 0), dict.fromkeys(shares, 0), 0, 0
    for arrival in stream:
        request = arrival.request
        while leaving and leaving[0][0] <= request.now_s:
            _, _, gone = heapq.heappop(leaving)
            engine.release(gone.vm_id)
            held.release(gone)
        offered[request.tenant] += 1
        over = held.refuses(request)
        needless += over and held.vms("a") < limit
        plan = None if over else engine.plan(request)
        if plan is not None:
            engine.take(request, plan)
            held.take(request)
            accepted[request.tenant] += 1
            most = max(most, held.vms("a"))
            heapq.heappush(leaving, (arrival.depart_s, request.vm_id, request))
    return rows_of("S8", f"load={load} gpus={_GPUS} quota={limit}", "vgpuctl", {
        "quota_violations": float(max(0, most - limit)), "needless_quota_refusals": float(needless),
        "acceptance_of_others": 100 * (accepted["b"] + accepted["c"]) / (offered["b"] + offered["c"]),
    })  # fmt: skip
