# SPDX-License-Identifier: Apache-2.0
"""A setting of GPUs in a driver in memory, with NVML's answers as the agent translates them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from orchestrator.agent.power_limits import PowerState
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


OWN_LIMIT = PowerState(least=60_000, default=70_000, most=70_000, now=70_000)
LIMITS = (100, 350)
"""The lowest and the highest limit of power of GPUs in memory, in watts."""


def driver_settings(limit: int | None) -> dict[str, Any]:
    """Fields of a snapshot. ``limit``: of power, in watts; 0: its own, None: its driver does not have it."""
    least, most = LIMITS
    now = None if limit is None else limit or most
    return {
        "ecc": True, "moves_vgpus": True,
        "power_min_watts": least, "power_default_watts": most, "power_max_watts": most, "power_limit_watts": now,
    }  # fmt: skip
