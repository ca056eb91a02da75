# SPDX-License-Identifier: Apache-2.0
"""A setting of GPUs in a driver in memory, with NVML's answers as the agent translates them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from orchestrator.core.errors import Conflict
from orchestrator.core.gpu.vgpu_parameters import SchedulerState

S = TypeVar("S")

BEST_EFFORT = SchedulerState(policy="best_effort", time_slice_us=None)


@dataclass
class FakeSetting(Generic[S]):
    """GPUs that are named in ``now`` have it."""

    now: dict[str, S] = field(default_factory=dict)
    sets: list[str] = field(default_factory=list)
    """GPUs whose setting was changed, in order."""
    deaf: bool = False
    """Takes what it is told and does otherwise."""
    busy: Callable[[str], bool] = lambda _gpu: False
    """Whether a vGPU is on the GPU."""

    def read(self, gpu: str) -> S | None:
        return self.now.get(gpu)

    def write(self, gpu: str, state: S) -> None:
        if self.busy(gpu):
            raise Conflict("gpu.in_use", "not while a vGPU is there")
        self.sets.append(gpu)
        if not self.deaf:
            self.now[gpu] = state
