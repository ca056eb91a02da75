# SPDX-License-Identifier: Apache-2.0
"""One run of arrivals and departures under one policy; and the ceiling: perfect repacking for free."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from orchestrator.core.placement.engine import PlacementEngine, demand_of
from orchestrator.core.placement.views import HostView
from tests.bench.placement.ceiling import Ceiling
from tests.bench.placement.lp_bound import most_weight
from tests.bench.placement.measured import MeasuredSimulation, Values
from tests.bench.placement.policies import POLICIES, PolicyName
from tests.bench.placement.workloads import Arrival

WARM_UP = 0.2
ALL = ("vgpuctl", "vgpuctl_moves", "first_fit", "best_fit", "spread", "max_capability", "fgd", "ceiling")
LP_BOUND = "lp_bound"
_LP_SECONDS = 600.0


@dataclass(slots=True)
class Tally:
    """Acceptance after the warm-up, weighted by the slots of each kind."""

    count: list[int]
    weight: list[float]
    special: list[int]


def run(policy: str, hosts: Iterable[HostView], stream: list[Arrival], special: Callable[[Arrival], bool]) -> Values:
    """``special`` marks the arrivals whose acceptance is reported separately."""
    tally = Tally([0, 0], [0.0, 0.0], [0, 0])
    start = stream[-1].request.now_s * WARM_UP
    if policy == "ceiling":
        _run_ceiling(hosts, stream, start, tally, special)
        return _values(tally, {})
    if policy == LP_BOUND:
        return _bounds(sum(len(host.gpus) for host in hosts), stream, start)
    simulation = MeasuredSimulation(hosts, policy=_engine_policy(policy), moves=3 if policy == "vgpuctl_moves" else 0)
    warm = False
    empty: list[int] = []
    for number, arrival in enumerate(stream):
        if not warm and arrival.request.now_s >= start:
            simulation.clear()
            warm = True
        outcome = simulation.offer(arrival.request, arrival.depart_s)
        if warm:
            _count(tally, arrival, special, accepted=outcome.placement is not None)
            if number % 64 == 0:
                empty.append(sum(not host.used for host in simulation.engine.fleet.hosts))
    values = _values(tally, simulation.values())
    values["empty_hosts"] = sum(empty) / max(1, len(empty))
    return values


def _bounds(gpus: int, stream: list[Arrival], start: float) -> Values:
    """The most that any policy could accept after the warm-up, each of the two by itself."""
    measured = [arrival for arrival in stream if arrival.request.now_s >= start]
    by_slots = most_weight(stream, gpus, lambda a: a.kind.slots if a.request.now_s >= start else 0.0, _LP_SECONDS)
    by_count = most_weight(stream, gpus, lambda a: float(a.request.now_s >= start), _LP_SECONDS)
    return {
        "weighted_acceptance": 100 * by_slots / sum(arrival.kind.slots for arrival in measured),
        "count_acceptance": 100 * by_count / len(measured),
    }


def _engine_policy(policy: str) -> PolicyName:
    return next((known for known in POLICIES if known == policy), "vgpuctl")


def _count(tally: Tally, arrival: Arrival, special: Callable[[Arrival], bool], *, accepted: bool) -> None:
    tally.count[accepted] += 1
    tally.weight[accepted] += arrival.kind.slots
    tally.special[accepted] += special(arrival)


def _run_ceiling(
    hosts: Iterable[HostView], stream: list[Arrival], start: float, tally: Tally, special: Callable[[Arrival], bool]
) -> None:
    ceiling = Ceiling(PlacementEngine(hosts).fleet)
    leaving: list[tuple[float, int]] = []
    for number, arrival in enumerate(stream):
        while leaving and leaving[0][0] <= arrival.request.now_s:
            ceiling.add(demand_of(stream[heapq.heappop(leaving)[1]].request), -1)
        demand = demand_of(arrival.request)
        accepted = ceiling.fits(demand)
        if accepted:
            ceiling.add(demand)
            heapq.heappush(leaving, (arrival.depart_s, number))
        if arrival.request.now_s >= start:
            _count(tally, arrival, special, accepted=accepted)


def _values(tally: Tally, summary: Values) -> Values:
    offered = sum(tally.count)
    avoidable = summary.get("avoidable_rejections")
    special = sum(tally.special)
    return {
        "weighted_acceptance": 100 * tally.weight[1] / sum(tally.weight),
        "count_acceptance": 100 * tally.count[1] / offered,
        "avoidable_rejections": 100 * avoidable / offered if avoidable is not None else 0.0,
        "active_over_min": summary.get("active_over_min"),
        "moves_per_vm": summary.get("moves_per_vm", 0.0),
        "latency_p50_us": summary.get("latency_p50_us"),
        "latency_p99_us": summary.get("latency_p99_us"),
        "special_acceptance": 100 * tally.special[1] / special if special else None,
    }
