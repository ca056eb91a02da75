# SPDX-License-Identifier: Apache-2.0
"""Faults of a GPU that NVML tells as states, told while they last, and licences of the vGPUs that running VMs have open
(nvml.h: nvmlVgpuInstanceGetLicenseInfo_v2). A driver says that of the guest: no guest can say it of itself."""

from __future__ import annotations

from calendar import timegm
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any, Final

import pynvml

from orchestrator.agent.nvml.asking import answer_of
from orchestrator.agent.nvml.fabric import fabric_info, state_of
from orchestrator.agent.nvml.gpu_readings import field_values
from orchestrator.core.gpu.health import NOT_JOINED, GpuSignal
from orchestrator.core.gpu.licence import LicenceState, VgpuLicence
from orchestrator.core.readings.quantities import RECOVERY_ACTIONS

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
    """How far the GPU is in joining it, with what result (which counts once that has ended), and its health whatever
    those say: a fabric that came up may have lost a route since."""
    info = fabric_info(device)
    mask = int(getattr(info, "healthMask", 0))
    faults = [name for name, shift in _FABRIC.items() if mask >> shift & _TWO_BITS == 1]
    if mask >> _CONFIGURATION & _FOUR_BITS not in _CONFIGURED:
        faults.append("incorrect_configuration")
    return (*_joined(info), *(GpuSignal(name=f"fabric-{name}") for name in faults))


def _joined(info: Any) -> tuple[GpuSignal, ...]:
    state = state_of(info)
    if state in {"not_started", "in_progress"}:
        return (GpuSignal(name=NOT_JOINED, text=state.replace("_", " ")),)
    return (GpuSignal(name="fabric-failed", text=f"NVML error {int(info.status)}"),) if state == "failed" else ()


def _rows(device: Any) -> tuple[GpuSignal, ...]:
    _, _, pending, failed = pynvml.nvmlDeviceGetRemappedRows(device)
    faults = {"remap_pending": pending, "remap_failed": failed}
    return tuple(GpuSignal(name=f"memory-{name}") for name, there in faults.items() if there)


def _errors(device: Any) -> tuple[GpuSignal, ...]:
    """Since the driver was loaded."""
    kinds = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
    count = pynvml.nvmlDeviceGetTotalEccErrors(device, *kinds)
    return (GpuSignal(name="memory-uncorrectable_errors"),) if count else ()


def _recovery(device: Any) -> tuple[GpuSignal, ...]:
    """What the driver asks for now; Xid 154 tells of the change."""
    (value,) = field_values(device, ((pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, 0),)) or (None,)
    action = 0 if value is None else int(value)
    return (GpuSignal(name=f"recovery-{RECOVERY_ACTIONS[action]}"),) if 0 < action < len(RECOVERY_ACTIONS) else ()


def _link(device: Any) -> tuple[GpuSignal, ...]:
    """Against what GPU and slot have together."""
    now = answer_of(lambda: int(pynvml.nvmlDeviceGetCurrPcieLinkWidth(device)))
    most = answer_of(lambda: int(pynvml.nvmlDeviceGetMaxPcieLinkWidth(device)))
    narrow = now is not None and most is not None and 0 < now < most
    return (GpuSignal(name="pcie-narrow", text=f"{now} of {most} lanes"),) if narrow else ()


health: Final[Mapping[str, Callable[[Any], tuple[GpuSignal, ...]]]] = {
    "fabric's health": _fabric,
    "remapped rows": _rows,
    "memory errors": _errors,
    "recovery action": _recovery,
    "PCIe link": _link,
}
"""What is asked → what answers it."""


_VALID = 2
"""NVML_GRID_LICENSE_EXPIRY_VALID; pynvml's constant of that name is a tuple."""
_UNSURE = (pynvml.NVML_GRID_LICENSE_STATE_UNKNOWN, pynvml.NVML_GRID_LICENSE_STATE_UNINITIALIZED)


def licences(device: Any) -> tuple[VgpuLicence, ...]:
    """:raises pynvml.NVMLError: NOT_SUPPORTED where the GPU has no vGPUs, FUNCTION_NOT_FOUND of an older driver"""
    licensed = (_licence(vgpu) for vgpu in pynvml.nvmlDeviceGetActiveVgpus(device))
    return tuple(licence for licence in licensed if licence is not None)


def _licence(vgpu: int) -> VgpuLicence | None:
    """None: its VM has just ended."""
    try:
        vm = pynvml.nvmlVgpuInstanceGetVmID(vgpu)[0]
        info = pynvml.nvmlVgpuInstanceGetLicenseInfo_v2(vgpu)
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_NOT_FOUND:
            return None
        raise
    uuid = vm.decode(errors="replace") if isinstance(vm, bytes) else str(vm)
    state: LicenceState = "unknown" if info.currentState in _UNSURE else "unlicensed"
    if not info.isLicensed:
        return VgpuLicence(vm=uuid, state=state)
    return VgpuLicence(vm=uuid, state="licensed", until=moment(info.licenseExpiry))


def moment(expiry: Any) -> int | None:
    """Drivers tell it in GMT. None: it has no end, or none that is a date."""
    if expiry.status != _VALID:
        return None
    try:
        day = date(expiry.year, expiry.month, expiry.day)
    except ValueError:
        return None
    return timegm((day.year, day.month, day.day, expiry.hour, expiry.min, expiry.sec))
