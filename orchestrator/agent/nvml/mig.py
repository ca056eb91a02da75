# SPDX-License-Identifier: Apache-2.0
"""MIG of any GPU by its PCI address, with NVML's errors as ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import pynvml

from orchestrator.agent.nvml import gpu_instances
from orchestrator.agent.nvml.gpu_instances import FoundInstance
from orchestrator.agent.nvml.reading import Nvml
from orchestrator.core.errors import Conflict, Fatal, Retryable, VgpuctlError

T = TypeVar("T")

_NO_MIG = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_NOT_FOUND,
)
"""An older GPU or driver, no driver, or a GPU that is not the driver's now: none of them has GPU instances."""
_LOG = "read the NVRM lines of the host's kernel log"


class Mig(Protocol):
    """What is asked of the driver."""

    def modes(self, gpu: str) -> tuple[bool, bool] | None:
        """(now, after the next reset); None: the GPU has no MIG."""

    def set_mode(self, gpu: str, *, on: bool) -> None:
        """It may stay pending: read it again."""

    def instances(self, gpu: str) -> tuple[FoundInstance, ...]:
        """All there are, by where they begin."""

    def shares(self, gpu: str, profile: str) -> bool:
        """Whether several vGPUs may lie in one instance of the profile."""

    def create(self, gpu: str, profile: str, start: int) -> None:
        """With a compute instance that takes all of it."""

    def fill(self, gpu: str, instance_id: int) -> None:
        """Give it that compute instance."""

    def destroy(self, gpu: str, instance_id: int) -> None:
        """With its compute instances."""


class NvmlMig:
    """Through NVML, opened for each call. Errors are :func:`error_for`'s."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml

    def modes(self, gpu: str) -> tuple[bool, bool] | None:
        try:
            return self._call(gpu, gpu_instances.mig_modes)
        except Fatal as error:
            if error.code == "gpu.no_mig":
                return None
            raise

    def set_mode(self, gpu: str, *, on: bool) -> None:
        self._call(gpu, lambda device: gpu_instances.set_mig_mode(device, on=on))

    def instances(self, gpu: str) -> tuple[FoundInstance, ...]:
        return self._call(gpu, gpu_instances.instances)

    def shares(self, gpu: str, profile: str) -> bool:
        return self._call(gpu, lambda device: gpu_instances.most_vgpus(device, profile)) > 1

    def create(self, gpu: str, profile: str, start: int) -> None:
        self._call(gpu, lambda device: gpu_instances.create(device, profile, start))

    def fill(self, gpu: str, instance_id: int) -> None:
        self._call(gpu, lambda device: gpu_instances.fill(device, instance_id))

    def destroy(self, gpu: str, instance_id: int) -> None:
        self._call(gpu, lambda device: gpu_instances.destroy(device, instance_id))

    def _call(self, gpu: str, function: Callable[[Any], T]) -> T:
        try:
            return self._nvml.change(lambda: function(gpu_instances.device_at(gpu)))
        except pynvml.NVMLError as error:
            raise error_for(error, gpu) from error


def error_for(error: pynvml.NVMLError, gpu: str) -> VgpuctlError:
    """What NVML's answer to a change of MIG means."""
    details = f"NVML on {gpu}: {error}"
    match error.value:
        case code if code in _NO_MIG:
            return Fatal(
                "gpu.no_mig", f"GPU {gpu} has no MIG", hint=f"'vgpuctl gpu show HOST {gpu}' tells", details=details
            )
        case pynvml.NVML_ERROR_GPU_IS_LOST:
            return Fatal("gpu.gone", f"GPU {gpu} has left the host's bus", hint="lspci -D; dmesg", details=details)
        case pynvml.NVML_ERROR_IN_USE:
            return Conflict(
                "gpu.in_use", f"GPU {gpu} or a part of it is in use", hint="stop what uses it first", details=details
            )
        case pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES | pynvml.NVML_ERROR_INVALID_ARGUMENT:
            return Fatal(
                "gpu.instance_refused",
                f"GPU {gpu} takes no such GPU instance there now",
                hint="'vgpuctl mig show HOST' tells what is on it",
                details=details,
            )
        case pynvml.NVML_ERROR_NO_PERMISSION:
            return Fatal("gpu.mig_refused", "the agent may not change MIG", hint="run it as root", details=details)
        case pynvml.NVML_ERROR_TIMEOUT | pynvml.NVML_ERROR_MEMORY:
            return Retryable("gpu.mig_busy", "the GPU driver has no time for it now", hint="try again", details=details)
    return Fatal("gpu.mig_refused", f"the driver of GPU {gpu} refused it", hint=_LOG, details=details)
