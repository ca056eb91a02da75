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


ObservedPolicy = Literal["best_effort", "equal_share", "fixed_share", "unknown"]
_SLICE_TOLERANCE_US = 50
"""A driver counts slices in units of its own."""


@dataclass(frozen=True, kw_only=True)
class SchedulerState:
    """Of one GPU, now. It is the GPU's, not a vGPU's: all vGPUs on it share it."""

    policy: ObservedPolicy
    time_slice_us: int | None
    """None: under best effort, or the driver does not say."""

    @classmethod
    def of(cls, wanted: Scheduler) -> SchedulerState:
        """As it is asked for; a time slice that is not is the driver's own."""
        slice_ms = wanted.time_slice_ms
        return cls(policy=wanted.policy, time_slice_us=None if slice_ms is None else slice_ms * 1000)

    @property
    def words(self) -> str:
        """For people."""
        name = self.policy.replace("_", " ")
        return name if self.time_slice_us is None else f"{name}, slices of {self.time_slice_us / 1000:g} ms"


def is_so(wanted: Scheduler, now: SchedulerState) -> bool:
    """Whether the GPU is as asked; a time slice that was not asked for may be any."""
    if wanted.policy != now.policy:
        return False
    if wanted.time_slice_ms is None:
        return True
    return now.time_slice_us is not None and abs(now.time_slice_us - wanted.time_slice_ms * 1000) <= _SLICE_TOLERANCE_US


def words(wanted: Scheduler | None) -> str:
    """The same of what is asked for."""
    if wanted is None:
        return "the driver's own scheduler"
    return SchedulerState.of(wanted).words
