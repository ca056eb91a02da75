# SPDX-License-Identifier: Apache-2.0
"""A GPU's vGPU scheduler through NVML (nvml.h: nvmlDeviceGetVgpuSchedulerState, nvmlDeviceSetVgpuSchedulerState).

The first version of the calls: every driver that has schedulers has it, and it takes time slices as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import pynvml

from orchestrator.agent.nvml import gpu_instances
from orchestrator.agent.nvml.reading import CANNOT, Nvml
from orchestrator.agent.nvml.scheduler_state import POLICIES, scheduler_state
from orchestrator.core.errors import Conflict, Fatal, Retryable, VgpuctlError
from orchestrator.core.gpu.scheduler import SchedulerState
from orchestrator.core.gpu.vgpu_parameters import Scheduler

T = TypeVar("T")

_NUMBERS = {name: number for number, name in POLICIES.items()}


class GpuSchedulers(Protocol):
    """What is asked of the driver."""

    def state(self, gpu: str) -> SchedulerState | None:
        """None: it has none that could be chosen."""

    def set(self, gpu: str, wanted: Scheduler) -> None:
        """Refused while a vGPU is on it. Read it again."""

    def put(self, gpu: str, before: SchedulerState) -> None:
        """As it was observed once."""


class NvmlSchedulers:
    """Through NVML, opened for each call. Errors are :func:`_error_for`'s."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml

    def state(self, gpu: str) -> SchedulerState | None:
        try:
            return self._nvml.change(lambda: scheduler_state(gpu_instances.device_at(gpu)))
        except pynvml.NVMLError as error:
            if error.value in CANNOT:
                return None
            raise _error_for(error, gpu) from error

    def set(self, gpu: str, wanted: Scheduler) -> None:
        self._set(gpu, _NUMBERS[wanted.policy], (wanted.time_slice_ms or 0) * 1_000_000)

    def put(self, gpu: str, before: SchedulerState) -> None:
        self._set(gpu, _NUMBERS[before.policy], (before.time_slice_us or 0) * 1000)

    def _set(self, gpu: str, policy: int, time_slice_ns: int) -> None:
        """A slice of 0 is the driver's own; adaptive round robin, which has none, is off where one was asked for."""
        asked = pynvml.c_nvmlVgpuSchedulerSetState_t()
        asked.schedulerPolicy = policy
        off = pynvml.NVML_VGPU_SCHEDULER_ARR_DISABLE
        asked.enableARRMode = off if time_slice_ns else pynvml.NVML_VGPU_SCHEDULER_ARR_DEFAULT
        asked.schedulerParams.vgpuSchedData.timeslice = time_slice_ns
        self._call(gpu, lambda device: pynvml.nvmlDeviceSetVgpuSchedulerState(device, asked))

    def _call(self, gpu: str, function: Callable[[Any], T]) -> T:
        try:
            return self._nvml.change(lambda: function(gpu_instances.device_at(gpu)))
        except pynvml.NVMLError as error:
            raise _error_for(error, gpu) from error


def _error_for(error: pynvml.NVMLError, gpu: str) -> VgpuctlError:
    details = f"NVML on {gpu}: {error}"
    match error.value:
        case code if code in CANNOT:
            return Conflict(
                "gpu.in_use",
                f"the driver of GPU {gpu} changes nothing of how its time is divided now",
                hint="it does so while no vGPU is on the GPU and MIG is off",
                details=details,
            )
        case pynvml.NVML_ERROR_IN_USE:
            return Conflict("gpu.in_use", f"GPU {gpu} is in use", hint="stop what uses it first", details=details)
        case pynvml.NVML_ERROR_TIMEOUT | pynvml.NVML_ERROR_MEMORY:
            return Retryable("gpu.nvml_busy", "the GPU driver has no time for it", hint="try again", details=details)
    return Fatal(
        "gpu.scheduler_refused",
        f"the driver of GPU {gpu} does not divide its time so",
        hint="read the NVRM lines of the host's kernel log",
        details=details,
    )
