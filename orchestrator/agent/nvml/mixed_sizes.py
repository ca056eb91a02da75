# SPDX-License-Identifier: Apache-2.0
"""A GPU's heterogeneous mode through NVML (nvml.h: nvmlDeviceGetVgpuHeterogeneousMode and its setter)."""

from __future__ import annotations

from typing import Protocol

import pynvml

from orchestrator.agent.nvml import gpu_instances
from orchestrator.agent.nvml.reading import CANNOT, Nvml
from orchestrator.core.errors import Conflict, Fatal, Retryable, VgpuctlError


class GpuMixedSizes(Protocol):
    """What is asked of the driver."""

    def state(self, gpu: str) -> bool | None:
        """None: the GPU cannot, or not now."""

    def put(self, gpu: str, before: bool) -> None:
        """Refused while a vGPU is on it. Read it again."""


class NvmlMixedSizes:
    """Through NVML, opened for each call. Errors are :func:`_error_for`'s."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml

    def state(self, gpu: str) -> bool | None:
        try:
            asked = self._nvml.change(lambda: pynvml.nvmlDeviceGetVgpuHeterogeneousMode(gpu_instances.device_at(gpu)))
        except pynvml.NVMLError as error:
            if error.value in CANNOT:
                return None
            raise _error_for(error, gpu) from error
        return bool(asked)

    def put(self, gpu: str, before: bool) -> None:
        try:
            self._nvml.change(
                lambda: pynvml.nvmlDeviceSetVgpuHeterogeneousMode(gpu_instances.device_at(gpu), int(before))
            )
        except pynvml.NVMLError as error:
            raise _error_for(error, gpu) from error


def _error_for(error: pynvml.NVMLError, gpu: str) -> VgpuctlError:
    details = f"NVML on {gpu}: {error}"
    match error.value:
        case pynvml.NVML_ERROR_IN_USE:
            return Conflict("gpu.in_use", f"GPU {gpu} is in use", hint="stop what uses it first", details=details)
        case pynvml.NVML_ERROR_TIMEOUT | pynvml.NVML_ERROR_MEMORY:
            return Retryable("gpu.nvml_busy", "the GPU driver has no time for it", hint="try again", details=details)
    return Fatal(
        "gpu.mixed_sizes_refused",
        f"the driver of GPU {gpu} does not change which vGPU sizes it takes",
        hint="read the NVRM lines of the host's kernel log",
        details=details,
    )
