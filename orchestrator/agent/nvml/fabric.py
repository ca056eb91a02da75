# SPDX-License-Identifier: Apache-2.0
"""How a GPU is joined to others over NVLink (nvml.h, nvmlDeviceGetGpuFabricInfoV). NVML is open meanwhile."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import pynvml

from orchestrator.core.gpu.fabric import FabricState, GpuFabric

_STATES: Final[Mapping[int, FabricState]] = {
    pynvml.NVML_GPU_FABRIC_STATE_NOT_STARTED: "not_started",
    pynvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS: "in_progress",
    pynvml.NVML_GPU_FABRIC_STATE_COMPLETED: "completed",
}


def fabric_of(device: Any) -> GpuFabric | None:
    """How it is joined to others. None: it has no fabric.

    :raises pynvml.NVMLError: FUNCTION_NOT_FOUND of an older driver"""
    info = fabric_info(device)
    state = state_of(info)
    if state is None:
        return None
    cluster = UUID(bytes=bytes(info.clusterUuid))
    return GpuFabric(state=state, cluster=str(cluster) if cluster.int else None, clique=int(info.cliqueId))


def fabric_info(device: Any) -> Any:
    """What NVML says; of drivers before R545 without the fabric's health.

    :raises pynvml.NVMLError: FUNCTION_NOT_FOUND of an older driver, NOT_SUPPORTED of a GPU that has none"""
    info = pynvml.c_nvmlGpuFabricInfo_v2_t()
    try:
        pynvml.nvmlDeviceGetGpuFabricInfoV(device, ctypes.byref(info))
    except (pynvml.NVMLError_ArgumentVersionMismatch, pynvml.NVMLError_FunctionNotFound):
        info = pynvml.c_nvmlGpuFabricInfo_t()
        pynvml.nvmlDeviceGetGpuFabricInfo(device, ctypes.byref(info))
    return info


def state_of(info: Any) -> FabricState | None:
    """None: it has no fabric. The status counts once the GPU has ended joining."""
    state = _STATES.get(int(info.state))
    return "failed" if state == "completed" and int(info.status) != pynvml.NVML_SUCCESS else state
