# SPDX-License-Identifier: Apache-2.0
"""Settings of GPUs through NVML: nvml.h, nvmlDeviceGetVgpuSchedulerState, nvmlDeviceGetVgpuHeterogeneousMode,
nvmlDeviceGetPowerManagementLimit and their setters. Of the scheduler's calls the first version: every driver that has
schedulers has it, and it takes time slices as they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pynvml

from orchestrator.agent.gpu_settings import SettingDrivers
from orchestrator.agent.nvml.gpu_instances import device_at
from orchestrator.agent.nvml.modes import POLICIES, scheduler_state
from orchestrator.agent.nvml.power import power_state
from orchestrator.agent.nvml.reading import CANNOT, Nvml
from orchestrator.agent.power_limits import PowerDriver
from orchestrator.core.errors import Conflict, Fatal, Retryable, VgpuctlError
from orchestrator.core.gpu.vgpu_parameters import SchedulerState

S = TypeVar("S")

_NUMBERS = {name: number for number, name in POLICIES.items()}


@dataclass(frozen=True, kw_only=True)
class NvmlSetting(Generic[S]):
    """NVML is opened for each call. Errors are :meth:`_error_for`'s."""

    nvml: Nvml
    get: Callable[[Any], S]
    """Of a device."""
    put: Callable[[Any, S], object]
    refused: tuple[str, str]
    """Code and message where the driver does not do it; {} is the GPU."""

    def read(self, gpu: str) -> S | None:
        """None: the GPU cannot, or not now."""
        try:
            return self.nvml.change(lambda: self.get(device_at(gpu)))
        except pynvml.NVMLError as error:
            if error.value in CANNOT:
                return None
            raise self._error_for(error, gpu) from error

    def write(self, gpu: str, state: S) -> None:
        try:
            self.nvml.change(lambda: self.put(device_at(gpu), state))
        except pynvml.NVMLError as error:
            raise self._error_for(error, gpu) from error

    def _error_for(self, error: pynvml.NVMLError, gpu: str) -> VgpuctlError:
        details = f"NVML on {gpu}: {error}"
        match error.value:
            case code if code in CANNOT:
                return Conflict(
                    "gpu.in_use",
                    f"the driver of GPU {gpu} changes nothing of its settings now",
                    hint="it does so while no vGPU is on the GPU and MIG is off",
                    details=details,
                )
            case pynvml.NVML_ERROR_IN_USE:
                return Conflict("gpu.in_use", f"GPU {gpu} is in use", hint="stop what uses it first", details=details)
            case pynvml.NVML_ERROR_TIMEOUT | pynvml.NVML_ERROR_MEMORY:
                return Retryable(
                    "gpu.nvml_busy", "the GPU driver has no time for it", hint="try again", details=details
                )
        code, message = self.refused
        return Fatal(
            code, message.format(gpu), hint="read the NVRM lines of the host's kernel log", details=details
        )  # fmt: skip


def setting_drivers(nvml: Nvml) -> SettingDrivers:
    """How a GPU divides its time, and whether it takes vGPUs of several sizes (heterogeneous mode)."""
    schedulers = NvmlSetting(
        nvml=nvml,
        get=scheduler_state,
        put=_set_scheduler,
        refused=("gpu.scheduler_refused", "the driver of GPU {} does not divide its time so"),
    )
    mixed_sizes = NvmlSetting(
        nvml=nvml,
        get=lambda device: bool(pynvml.nvmlDeviceGetVgpuHeterogeneousMode(device)),
        put=lambda device, on: pynvml.nvmlDeviceSetVgpuHeterogeneousMode(device, int(on)),
        refused=("gpu.mixed_sizes_refused", "the driver of GPU {} does not change which vGPU sizes it takes"),
    )
    return SettingDrivers(schedulers=schedulers, mixed_sizes=mixed_sizes)


def power_driver(nvml: Nvml) -> PowerDriver:
    return NvmlSetting(
        nvml=nvml,
        get=power_state,
        put=lambda device, state: pynvml.nvmlDeviceSetPowerManagementLimit(device, state.now),
        refused=("gpu.power_limit_refused", "the driver of GPU {} takes no such limit of its power"),
    )


def _set_scheduler(device: Any, state: SchedulerState) -> None:
    """A slice of 0 is the driver's own; adaptive round robin, which has none, is off where one was asked for."""
    time_slice_ns = (state.time_slice_us or 0) * 1000
    request = pynvml.c_nvmlVgpuSchedulerSetState_t()
    request.schedulerPolicy = _NUMBERS[state.policy]
    off = pynvml.NVML_VGPU_SCHEDULER_ARR_DISABLE
    request.enableARRMode = off if time_slice_ns else pynvml.NVML_VGPU_SCHEDULER_ARR_DEFAULT
    request.schedulerParams.vgpuSchedData.timeslice = time_slice_ns
    pynvml.nvmlDeviceSetVgpuSchedulerState(device, request)
