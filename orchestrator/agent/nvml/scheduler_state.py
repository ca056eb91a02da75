# SPDX-License-Identifier: Apache-2.0
"""A GPU's vGPU scheduler as NVML tells it. NVML is open meanwhile."""

from __future__ import annotations

from typing import Any

import pynvml

from orchestrator.core.gpu.scheduler import ObservedPolicy, SchedulerState

POLICIES: dict[int, ObservedPolicy] = {
    pynvml.NVML_VGPU_SCHEDULER_POLICY_BEST_EFFORT: "best_effort",
    pynvml.NVML_VGPU_SCHEDULER_POLICY_EQUAL_SHARE: "equal_share",
    pynvml.NVML_VGPU_SCHEDULER_POLICY_FIXED_SHARE: "fixed_share",
}


def scheduler_state(device: Any) -> SchedulerState:
    """:raises pynvml.NVMLError: it has none"""
    found = pynvml.nvmlDeviceGetVgpuSchedulerState(device)
    policy = POLICIES.get(int(found.schedulerPolicy), "unknown")
    adaptive = found.arrMode == pynvml.NVML_VGPU_SCHEDULER_ARR_ENABLE
    parts = found.schedulerParams
    slice_ns = int(parts.vgpuSchedDataWithARR.timeslice if adaptive else parts.vgpuSchedData.timeslice)
    timed = policy in {"equal_share", "fixed_share"} and slice_ns > 0
    return SchedulerState(policy=policy, time_slice_us=slice_ns // 1000 if timed else None)
