# SPDX-License-Identifier: Apache-2.0
"""Licences of the vGPUs that running VMs have open (nvml.h: nvmlVgpuInstanceGetLicenseInfo_v2). NVML is open meanwhile.

A driver says it of the guest: no guest can say it of itself."""

from __future__ import annotations

from calendar import timegm
from datetime import date
from typing import Any

import pynvml

from orchestrator.core.gpu.licence import LicenceState, VgpuLicence

_VALID = 2
"""NVML_GRID_LICENSE_EXPIRY_VALID; pynvml's constant of that name is a tuple."""
_UNSURE = (pynvml.NVML_GRID_LICENSE_STATE_UNKNOWN, pynvml.NVML_GRID_LICENSE_STATE_UNINITIALIZED)


def licences(device: Any) -> tuple[VgpuLicence, ...]:
    """:raises pynvml.NVMLError: NOT_SUPPORTED where the GPU has no vGPUs, FUNCTION_NOT_FOUND of an older driver"""
    found = (_licence(vgpu) for vgpu in pynvml.nvmlDeviceGetActiveVgpus(device))
    return tuple(licence for licence in found if licence is not None)


def _licence(vgpu: int) -> VgpuLicence | None:
    """None: its VM has just ended."""
    try:
        vm = pynvml.nvmlVgpuInstanceGetVmID(vgpu)[0]
        told = pynvml.nvmlVgpuInstanceGetLicenseInfo_v2(vgpu)
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_NOT_FOUND:
            return None
        raise
    uuid = vm.decode(errors="replace") if isinstance(vm, bytes) else str(vm)
    state: LicenceState = "unknown" if told.currentState in _UNSURE else "unlicensed"
    if not told.isLicensed:
        return VgpuLicence(vm=uuid, state=state)
    return VgpuLicence(vm=uuid, state="licensed", until=_moment(told.licenseExpiry))


def _moment(expiry: Any) -> int | None:
    """Drivers tell it in GMT. None: it has no end, or none that is a date."""
    if expiry.status != _VALID:
        return None
    try:
        day = date(expiry.year, expiry.month, expiry.day)
    except ValueError:
        return None
    return timegm((day.year, day.month, day.day, expiry.hour, expiry.min, expiry.sec))
