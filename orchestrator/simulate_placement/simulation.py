# SPDX-License-Identifier: Apache-2.0
"""Runs requests through the engine in simulated time and keeps score."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from orchestrator.core.placement.engine import PlacementEngine, PlacementPlan, demand_of
from orchestrator.core.placement.preemption import plan_preemption
from orchestrator.core.placement.state_table import Demand
from orchestrator.core.placement.views import Placement, Request

_PER_DECADE = 40
"""Latency classes per factor of ten: percentiles are right within 6 %."""


@dataclass(slots=True)
class Latencies:
    """A histogram over logarithmic classes of nanoseconds."""

    classes: dict[int, int] = field(default_factory=dict)
    count: int = 0

    def add(self, nanoseconds: int) -> None:
        """Count one latency."""
        at = int(math.log10(max(nanoseconds, 1)) * _PER_DECADE)
        self.classes[at] = self.classes.get(at, 0) + 1
        self.count += 1

    def percentile_us(self, share: float) -> float | None:
        """The latency that ``share`` (0 to 1) of all do not exceed, microseconds; None without any."""
        left = share * self.count
        for at in sorted(self.classes):
            left -= self.classes[at]
            if left <= 0:
                return round(10 ** ((at + 1) / _PER_DECADE) / 1000, 2)
        return None


class Score:
    """What ``summary`` says. Weights are GPU memory demanded."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin again, for example after a warm-up."""
        self.latencies = Latencies()
        self._count = [0, 0]
        self._weight = [0, 0]
        self._preempted = 0

    def latency(self, nanoseconds: int) -> None:
        """One decision took this long."""
        self.latencies.add(nanoseconds)

    def accepted(self, weight: int, preempted: int) -> None:
        """One request was placed, after that many VMs of lower priority were stopped."""
        self._count[1] += 1
        self._weight[1] += weight
        self._preempted += preempted

    def rejected(self, weight: int) -> None:
        """One request was refused."""
        self._count[0] += 1
        self._weight[0] += weight

    def summary(self) -> dict[str, float | int | None]:
        """Shares are between 0 and 1; None where there was nothing to measure."""
        offered, weight = sum(self._count), sum(self._weight)
        return {
            "requests": offered,
            "accepted": self._count[1],
            "count_acceptance": _share(self._count[1], offered),
            "weighted_acceptance": _share(self._weight[1], weight),
            "preempted": self._preempted,
            "latency_p50_us": self.latencies.percentile_us(0.5),
            "latency_p99_us": self.latencies.percentile_us(0.99),
            "latency_p999_us": self.latencies.percentile_us(0.999),
        }


def _share(part: float, whole: float) -> float | None:
    return round(part / whole, 6) if whole else None


_LACKS_ROOM = frozenset({"gpu.no_capacity", "host.no_room"})
"""Refusals that stopping other VMs can help against."""


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """What became of one request."""

    placement: Placement | None
    reason: str | None
    preempted: tuple[str, ...] = ()
    """VMs of lower priority that were stopped for it."""


class Simulation:
    """An engine with a clock. ``now_ns`` is asked for latencies only and never decides anything."""

    def __init__(self, engine: PlacementEngine, *, now_ns: Callable[[], int]) -> None:
        self.engine = engine
        self.score = Score()
        self._departures: list[tuple[float, int, str]] = []
        self._weights: dict[tuple[Demand, int], int] = {}
        self._now_ns = now_ns
        self._count = 0

    def offer(self, request: Request, depart_s: float = math.inf) -> RequestOutcome:
        """One arrival at ``request.now_s``; everybody whose time is up has left before."""
        self._leave_until(request.now_s)
        self._count += 1
        engine = self.engine
        begin = self._now_ns()
        plan, reason = self._plan(request)
        preempted = self._preempt(request) if reason in _LACKS_ROOM else ()
        if preempted:
            plan, reason = engine.plan(request), None
        self.score.latency(self._now_ns() - begin)
        weight = self._weight(request)
        if plan is None:
            self.score.rejected(weight)
            return RequestOutcome(None, reason)
        placement = engine.take(request, plan)
        self.score.accepted(weight, len(preempted))
        if depart_s < math.inf:
            heapq.heappush(self._departures, (depart_s, self._count, request.vm_id))
        return RequestOutcome(placement, None, preempted)

    def _plan(self, request: Request) -> tuple[PlacementPlan | None, str | None]:
        plan = self.engine.plan(request)
        return plan, None if plan is not None else self._why_not(request)

    def _preempt(self, request: Request) -> tuple[str, ...]:
        """Stop the VMs of lower priority that cost the fewest slot-hours and give ``request`` room; empty: none do."""
        preemption = plan_preemption(self.engine, request)
        for vm_id in preemption.victims if preemption is not None else ():
            self._leave(vm_id)
        return preemption.victims if preemption is not None else ()

    def _weight(self, request: Request) -> int:
        key = (demand_of(request), request.count)
        if key not in self._weights:
            self._weights[key] = weight_mib(self.engine, request)
        return self._weights[key]

    def _why_not(self, request: Request) -> str:
        engine, demand = self.engine, demand_of(request)
        if not demand.whole_gpus and not any(table.options(demand) for table in engine.fleet.tables):
            return "profile.unsupported"
        if not engine.fleet.classes.any_host(request.vcpus, request.memory_mib):
            return "host.no_room"
        lean = replace(request, vcpus=0, memory_mib=0)
        return "gpu.no_capacity" if engine.plan(lean) is None else "host.no_room"

    def _leave_until(self, now_s: float) -> None:
        while self._departures and self._departures[0][0] <= now_s:
            vm_id = heapq.heappop(self._departures)[2]
            if vm_id in self.engine.vms:  # else it was preempted
                self._leave(vm_id)

    def _leave(self, vm_id: str) -> None:
        self.engine.release(vm_id)


def weight_mib(engine: PlacementEngine, request: Request) -> int:
    """GPU memory that a request asks for, on the first GPU model that can serve it; 0 if none can."""
    demand = demand_of(request)
    for table in engine.fleet.tables:
        if demand.whole_gpus:
            return table.total_mib * demand.whole_gpus * request.count
        sizes = [table.cuts[cut].size(shape) * table.cuts[cut].slot_mib for cut, shape in table.options(demand)]
        if sizes:
            return min(sizes) * request.count
    return 0
