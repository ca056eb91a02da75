# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: N802 - functions are called as in NVML
"""Licences of guests as drivers tell them, through pynvml on a library object of our own."""

from __future__ import annotations

from typing import Any

import pynvml
import pytest

from orchestrator.agent.nvml.health import licences
from orchestrator.core.gpu.licence import VgpuLicence

OK, NOT_FOUND, TOO_SMALL = 0, 6, 7


class Driver:
    """``told``: by vGPU, (licensed, state, expiry's status, year); a vGPU of 0 has no VM any more."""

    def __init__(self, *told: tuple[int, int, int, int]) -> None:
        self.told = told

    def nvmlErrorString(self, _result: int) -> bytes:
        return b"Error"

    def nvmlDeviceGetActiveVgpus(self, _device: object, count: Any, ids: Any) -> int:
        count._obj.value = len(self.told) + 1
        if ids is None:
            return TOO_SMALL
        for number in range(len(self.told) + 1):
            ids[number] = number
        return OK

    def nvmlVgpuInstanceGetVmID(self, vgpu: int, text: Any, _size: object, kind: Any) -> int:
        if vgpu == 0:
            return NOT_FOUND
        text._obj.value, kind._obj.value = f"vm-{vgpu}".encode(), 1
        return OK

    def nvmlVgpuInstanceGetLicenseInfo_v2(self, vgpu: int, info: Any) -> int:
        found = info._obj
        found.isLicensed, found.currentState, found.licenseExpiry.status, found.licenseExpiry.year = self.told[vgpu - 1]
        found.licenseExpiry.month, found.licenseExpiry.day, found.licenseExpiry.hour = 1, 31, 12
        return OK


def _licences(monkeypatch: pytest.MonkeyPatch, driver: object) -> tuple[VgpuLicence, ...]:
    monkeypatch.setattr(pynvml, "nvmlLib", driver)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return licences(None)


def test_each_vgpu_has_its_vms_licence_and_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver((1, 5, 2, 2027), (1, 5, 4, 0), (1, 5, 2, 0), (0, 4, 0, 0), (0, 3, 0, 0), (0, 0, 0, 0), (0, 1, 0, 0))
    assert _licences(monkeypatch, driver) == (
        VgpuLicence(vm="vm-1", state="licensed", until=1801396800),
        VgpuLicence(vm="vm-2", state="licensed"),
        VgpuLicence(vm="vm-3", state="licensed"),
        VgpuLicence(vm="vm-4", state="unlicensed"),
        VgpuLicence(vm="vm-5", state="unlicensed"),
        VgpuLicence(vm="vm-6", state="unknown"),
        VgpuLicence(vm="vm-7", state="unknown"),
    )


def test_a_driver_that_is_too_old_to_be_asked_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Old(Driver):
        nvmlVgpuInstanceGetLicenseInfo_v2 = property()  # noqa: N815 - it lacks the function

    with pytest.raises(pynvml.NVMLError) as caught:
        _licences(monkeypatch, Old((1, 5, 2, 2027)))
    assert caught.value.value == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
