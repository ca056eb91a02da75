# SPDX-License-Identifier: Apache-2.0
"""A driver's vGPU schedulers in memory, with NVML's answers as the agent translates them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from orchestrator.core.errors import Conflict
from orchestrator.core.gpu.scheduler import SchedulerState
from orchestrator.core.gpu.vgpu_parameters import Scheduler

BEST_EFFORT = SchedulerState(policy="best_effort", time_slice_us=None)


@dataclass
class FakeSchedulers:
    """GPUs that are named in ``now`` have schedulers."""

    now: dict[str, SchedulerState] = field(default_factory=dict)
    sets: list[str] = field(default_factory=list)
    """GPUs whose scheduler was changed, in order."""
    deaf: bool = False
    """Takes what it is told and does otherwise."""
    busy: Callable[[str], bool] = lambda _gpu: False
    """Whether a vGPU is on the GPU."""

    def state(self, gpu: str) -> SchedulerState | None:
        return self.now.get(gpu)

    def set(self, gpu: str, wanted: Scheduler) -> None:
        slice_us = None if wanted.policy == "best_effort" else (wanted.time_slice_ms or 2) * 1000
        self.put(gpu, SchedulerState(policy=wanted.policy, time_slice_us=slice_us))

    def put(self, gpu: str, before: SchedulerState) -> None:
        if self.busy(gpu):
            raise Conflict("gpu.in_use", "not while a vGPU is there")
        self.sets.append(gpu)
        if not self.deaf:
            self.now[gpu] = before
