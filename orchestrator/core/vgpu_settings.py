# SPDX-License-Identifier: Apache-2.0
"""Host actions that set how vGPUs behave: what was asked for beside the vGPU itself."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.host_actions import HostAction, MakesDevice, RemovesDevice
from orchestrator.core.offering import Scheduler, SchedulerPolicy


@dataclass(frozen=True, kw_only=True)
class SetVgpuScheduler(MakesDevice):
    """Have a GPU divide its time so, for as long as VMs want it. What it was before is written down first. Refused
    while there is a vGPU on the GPU, whoever made it, unless it is so already."""

    since = 6
    gpu: str
    policy: SchedulerPolicy
    time_slice_ms: int | None

    @property
    def function(self) -> str:
        return self.gpu

    @property
    def wanted(self) -> Scheduler:
        return Scheduler(policy=self.policy, time_slice_ms=self.time_slice_ms)

    def inverse(self) -> HostAction:
        return RestoreVgpuScheduler(vm=self.vm, gpu=self.gpu)


@dataclass(frozen=True, kw_only=True)
class RestoreVgpuScheduler(RemovesDevice):
    """The VM wants it no more. With the last that did, the GPU divides its time as before; where somebody else's vGPU
    is on it by then, when the GPU is given back."""

    since = 6
    gpu: str
