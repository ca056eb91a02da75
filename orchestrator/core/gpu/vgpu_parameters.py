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
    """Division of the GPU's time; a GPU has one policy."""
    time_slice_ms: int | None = None
    """A turn in ms, 1 to 30, of ``equal_share`` and ``fixed_share``; None: the driver's default."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VgpuParameters:
    """Parameters of the vGPU plugin. None leaves the driver's default."""

    uvm: bool = False
    """Unified memory works in the guest: MIG-backed types and full-size C types."""
    frame_rate_limiter: bool | None = None
    """Whether frames are limited; works under ``best_effort`` only. None: the driver's default."""
    debugging: bool = False
    """CUDA debuggers work in the guest; rules out live migration."""
    profiling: bool = False
    """CUDA profilers work in the guest; rules out live migration."""
    console: bool | None = None
    """Whether the vGPU draws the VM's VNC console; None: the driver's default."""
