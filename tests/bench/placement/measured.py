# SPDX-License-Identifier: Apache-2.0
"""A simulation under one policy that may move VMs, measured against perfect repacking for free."""

from __future__ import annotations

import time
from collections.abc import Iterable

from orchestrator.core.placement.engine import PlacementPlan, demand_of
from orchestrator.core.placement.views import HostView, Request
from orchestrator.simulate_placement.simulation import RequestOutcome, Simulation
from tests.bench.placement.ceiling import Ceiling
from tests.bench.placement.moves.repack import make_room
from tests.bench.placement.policies import PolicyEngine, PolicyName

_SAMPLE_EVERY = 16
"""Arrivals between two samples of the number of active GPUs."""
Values = dict[str, float | int | None]


class MeasuredSimulation(Simulation):
    engine: PolicyEngine

    def __init__(self, hosts: Iterable[HostView], *, policy: PolicyName = "vgpuctl", moves: int = 0) -> None:
        """``moves``: the most VMs moved to make room for one."""
        super().__init__(PolicyEngine(hosts, policy=policy), now_ns=time.perf_counter_ns)
        self._most_moves = moves
        self._ceiling = Ceiling(self.engine.fleet, self.engine.counts)
        self._arrivals = 0
        self.clear()

    def clear(self) -> None:
        """Begin to measure, after a warm-up."""
        self.score.clear()
        self._moves = self._avoidable = self._active = self._minimum = 0

    def values(self) -> Values:
        """What the product's simulation says, and how far from perfect it was."""
        summary = self.score.summary()
        accepted = summary["accepted"] or 0
        return {
            **summary,
            "avoidable_rejections": self._avoidable,
            "active_over_min": self._active / self._minimum if self._minimum else None,
            "moves_per_vm": self._moves / accepted if accepted else None,
        }

    def offer(self, request: Request, depart_s: float = float("inf")) -> RequestOutcome:
        self._leave_until(request.now_s)
        self._arrivals += 1
        if self._arrivals % _SAMPLE_EVERY == 0:
            self._active += self.engine.fleet.active
            self._minimum += self._ceiling.minimum_gpus()
        outcome = super().offer(request, depart_s)
        if outcome.placement is not None:
            self._ceiling.add(demand_of(request), request.count)
        elif outcome.reason == "gpu.no_capacity":
            self._avoidable += self._ceiling.fits(demand_of(request), request.count)
        return outcome

    def _plan(self, request: Request) -> tuple[PlacementPlan | None, str | None]:
        plan, reason = super()._plan(request)
        if plan is not None or not self._most_moves:
            return plan, reason
        moves = make_room(self.engine, request, self._most_moves)
        if moves is None:
            return None, reason
        self._moves += len(moves)
        return self.engine.plan(request), None

    def _leave(self, vm_id: str) -> None:
        request = self.engine.vms[vm_id].request
        super()._leave(vm_id)
        self._ceiling.add(demand_of(request), -request.count)
