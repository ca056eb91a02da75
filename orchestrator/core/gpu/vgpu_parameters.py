# SPDX-License-Identifier: Apache-2.0
"""What can be set for a vGPU: how its GPU divides the time, and parameters of NVIDIA's vGPU plugin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SchedulerPolicy = Literal["best_effort", "equal_share", "fixed_share"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Scheduler:
    """How the GPU's time is divided. None leaves the driver's default."""

    policy: SchedulerPolicy
    time_slice_ms: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class VgpuParameters:
    """Parameters of the vGPU plugin. None leaves the driver's default."""

    uvm: bool = False
    """Unified memory."""
    frame_rate_limiter: bool | None = None
    debugging: bool = False
    profiling: bool = False
    console: bool | None = None
    """Whether the vGPU draws the VNC console."""
