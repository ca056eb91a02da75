# SPDX-License-Identifier: Apache-2.0
"""Faults of a GPU that NVML tells as states: they are told while they last."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any, Final

import pynvml

from orchestrator.core.gpu.health import GpuSignal

_FABRIC: Final = {
    "degraded_bandwidth": pynvml.NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_DEGRADED_BW,
    "route_recovery": pynvml.NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_RECOVERY,
    "route_unhealthy": pynvml.NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_UNHEALTHY,
    "access_timeout_recovery": pynvml.NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ACCESS_TIMEOUT_RECOVERY,
}
"""Where each stands in the mask, in two bits: 0 not supported, 1 so, 2 not so (nvml.h)."""
_CONFIGURATION: Final = pynvml.NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_INCORRECT_CONFIGURATION
_CONFIGURED: Final = (
    pynvml.NVML_GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_NOT_SUPPORTED,
    pynvml.NVML_GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_NONE,
)
_TWO_BITS: Final = 3
_FOUR_BITS: Final = 15


def _fabric(device: Any) -> tuple[GpuSignal, ...]:
    """Whatever state and status say: a fabric that came up may have lost a route since."""
    info = pynvml.c_nvmlGpuFabricInfo_v2_t()
    try:
        pynvml.nvmlDeviceGetGpuFabricInfoV(device, ctypes.byref(info))
    except pynvml.NVMLError_ArgumentVersionMismatch:  # a driver that does not tell of its health
        return ()
    mask = int(info.healthMask)
    faults = [name for name, shift in _FABRIC.items() if mask >> shift & _TWO_BITS == 1]
    if mask >> _CONFIGURATION & _FOUR_BITS not in _CONFIGURED:
        faults.append("incorrect_configuration")
    return tuple(GpuSignal(name=f"fabric-{name}") for name in faults)


def _rows(device: Any) -> tuple[GpuSignal, ...]:
    _, _, pending, failed = pynvml.nvmlDeviceGetRemappedRows(device)
    faults = {"remap_pending": pending, "remap_failed": failed}
    return tuple(GpuSignal(name=f"memory-{name}") for name, there in faults.items() if there)


def _errors(device: Any) -> tuple[GpuSignal, ...]:
    """Since the driver was loaded."""
    kinds = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
    there = pynvml.nvmlDeviceGetTotalEccErrors(device, *kinds)
    return (GpuSignal(name="memory-uncorrectable_errors"),) if there else ()


health: Final[Mapping[str, Callable[[Any], tuple[GpuSignal, ...]]]] = {
    "fabric's health": _fabric,
    "remapped rows": _rows,
    "memory errors": _errors,
}
"""What is asked → what answers it."""
