# SPDX-License-Identifier: Apache-2.0
"""Runs requests through the engine in simulated time and keeps score."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from orchestrator.core.placement.engine import PlacementEngine, PlacementPlan, demand_of
from orchestrator.core.placement.preemption import plan_preemption
from orchestrator.core.placement.state_table import Demand
from orchestrator.core.placement.views import Placement, Request
from orchestrator.simulate_placement.score import Score

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
