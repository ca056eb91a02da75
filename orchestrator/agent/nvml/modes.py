# SPDX-License-Identifier: Apache-2.0
"""Modes of a GPU: how it divides its time, and those that its board keeps, whoever sets them, a guest that has all of
it too: ECC, and MIG on some boards. By nvml.h nvmlDeviceSetEccMode takes effect with the next reset or reboot, and
nvmlDeviceSetMigMode does so on some boards."""

from __future__ import annotations

from typing import Any

import pynvml

from orchestrator.agent.nvml.gpu_instances import device_at
from orchestrator.core.gpu.vgpu_parameters import ObservedPolicy, SchedulerState

POLICIES: dict[int, ObservedPolicy] = {
    pynvml.NVML_VGPU_SCHEDULER_POLICY_BEST_EFFORT: "best_effort",
    pynvml.NVML_VGPU_SCHEDULER_POLICY_EQUAL_SHARE: "equal_share",
    pynvml.NVML_VGPU_SCHEDULER_POLICY_FIXED_SHARE: "fixed_share",
}


def scheduler_state(device: Any) -> SchedulerState:
    """:raises pynvml.NVMLError: it has none"""
    state = pynvml.nvmlDeviceGetVgpuSchedulerState(device)
    policy = POLICIES.get(int(state.schedulerPolicy), "unknown")
    adaptive = state.arrMode == pynvml.NVML_VGPU_SCHEDULER_ARR_ENABLE
    parts = state.schedulerParams
    slice_ns = int(parts.vgpuSchedDataWithARR.timeslice if adaptive else parts.vgpuSchedData.timeslice)
    timed = policy in {"equal_share", "fixed_share"} and slice_ns > 0
    return SchedulerState(policy=policy, time_slice_us=slice_ns // 1000 if timed else None)


def set_modes(gpu: str, *, ecc: bool | None, mig: bool | None) -> bool:
    """Whether one is otherwise until the next reset. None: it is left as it is, as one that the driver does not tell.

    :raises pynvml.NVMLError: the driver refuses"""
    waits = False
    for wanted, get, put in (
        (ecc, pynvml.nvmlDeviceGetEccMode, pynvml.nvmlDeviceSetEccMode),
        (mig, pynvml.nvmlDeviceGetMigMode, pynvml.nvmlDeviceSetMigMode),
    ):
        modes = None if wanted is None else _modes(gpu, get)
        if wanted is None or modes in (None, (wanted, wanted)):
            continue
        put(device_at(gpu), int(wanted))
        waits |= _modes(gpu, get) != (wanted, wanted)
    return waits


def _modes(gpu: str, get: Any) -> tuple[bool, bool] | None:
    """(now, after the next reset); None: the GPU has none, or its driver does not tell."""
    try:
        now, pending = get(device_at(gpu))
    except pynvml.NVMLError:
        return None
    return bool(now), bool(pending)
