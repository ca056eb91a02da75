# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: N802 - functions are called as in NVML
"""Faults that NVML tells as states, and how a GPU is joined to others."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any
from uuid import UUID

import pynvml
import pytest

from orchestrator.agent.nvml.gpu_readings import constants, numbers
from orchestrator.agent.nvml.reading import Nvml, opened
from orchestrator.core.gpu.fabric import GpuFabric
from tests.unit.agent.test_nvml_reading import NOT_SUPPORTED, OK, OldDriver


class IllDriver(OldDriver):
    """Both GPUs answer, and say that state and status of the fabric are all right."""

    mask, pending, failed, errors, fabric_result = 0, 0, 0, 0, OK
    state, status = pynvml.NVML_GPU_FABRIC_STATE_COMPLETED, OK

    def _lost(self, _handle: Any) -> bool:
        return False

    def nvmlDeviceGetGpuFabricInfoV(self, _handle: object, info: Any) -> int:
        told = info._obj
        assert told.version == pynvml.nvmlGpuFabricInfo_v2
        told.state, told.status, told.healthMask = self.state, self.status, self.mask
        return self.fabric_result

    def nvmlDeviceGetRemappedRows(
        self, _handle: object, corrected: Any, uncorrected: Any, pending: Any, failed: Any
    ) -> int:
        corrected._obj.value, uncorrected._obj.value = 3, 1
        pending._obj.value, failed._obj.value = self.pending, self.failed
        return OK

    def nvmlDeviceGetTotalEccErrors(self, _handle: object, kind: Any, counter: Any, count: Any) -> int:
        uncorrected, volatile = kind.value == 1, counter.value == 0
        count._obj.value = self.errors if uncorrected and volatile else 1000
        return OK


@pytest.mark.fault("F89")
@pytest.mark.parametrize(
    ("ill", "told"),
    [
        ({}, []),
        ({"mask": 0b10_10_10_10}, []),
        ({"mask": 0b10_01_10_10}, ["fabric-route_unhealthy"]),
        (
            {"mask": 0b01_00_01_01},
            ["fabric-degraded_bandwidth", "fabric-route_recovery", "fabric-access_timeout_recovery"],
        ),
        ({"mask": 1 << 8}, []),
        ({"mask": 5 << 8}, ["fabric-incorrect_configuration"]),
        ({"mask": 1 << 14 | 2 << 12}, []),
        ({"mask": 1, "fabric_result": 25}, []),
        ({"state": pynvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED, "status": 999}, []),
        ({"state": pynvml.NVML_GPU_FABRIC_STATE_NOT_STARTED, "status": 999}, ["fabric-not_joined"]),
        ({"state": pynvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS}, ["fabric-not_joined"]),
        ({"status": 999}, ["fabric-failed"]),
        ({"status": 999, "mask": 0b01}, ["fabric-failed", "fabric-degraded_bandwidth"]),
        ({"mask": 1, "fabric_result": NOT_SUPPORTED}, []),
        ({"pending": 1}, ["memory-remap_pending"]),
        ({"failed": 1}, ["memory-remap_failed"]),
        ({"errors": 2}, ["memory-uncorrectable_errors"]),
    ],
)
def test_what_nvml_tells_of_faults_is_told_although_all_else_is_success(
    monkeypatch: pytest.MonkeyPatch, ill: dict[str, int], told: list[str]
) -> None:
    driver = IllDriver()
    vars(driver).update(ill)
    monkeypatch.setattr(pynvml, "nvmlLib", driver)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    gpu = Nvml().read().gpus["0000:01:00.0"]
    assert [one.name for one in gpu.signals] == told
    assert gpu.problems == ()


CLUSTER = "9c6f5af3-53bf-49b5-a436-b66766c413c3"
ON_A_BOARD = GpuFabric(state="completed", cluster=None, clique=0)


class InADomain(IllDriver):
    """Its GPUs say of which NVLink domain they are."""

    cluster, clique = bytes(16), 0

    def nvmlDeviceGetUUID(self, _handle: object, text: Any, _size: object) -> int:
        text.value = b"GPU-1"
        return OK

    def nvmlDeviceGetGpuFabricInfoV(self, handle: object, info: Any) -> int:
        ctypes.memmove(info._obj.clusterUuid, self.cluster, 16)
        info._obj.cliqueId = self.clique
        return super().nvmlDeviceGetGpuFabricInfoV(handle, info)


class OfR535(InADomain):
    """It has the function without a version alone."""

    def nvmlDeviceGetGpuFabricInfoV(self, _handle: object, _info: Any) -> int:
        return int(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)

    def nvmlDeviceGetGpuFabricInfo(self, _handle: object, info: Any) -> int:
        ctypes.memmove(info._obj.clusterUuid, self.cluster, 16)
        info._obj.cliqueId, info._obj.state, info._obj.status = self.clique, self.state, self.status
        return OK


@pytest.mark.parametrize("kind", [InADomain, OfR535])
@pytest.mark.parametrize(
    ("told", "fabric", "signals"),
    [
        ({}, ON_A_BOARD, []),
        (
            {"cluster": UUID(CLUSTER).bytes, "clique": 4026},
            GpuFabric(state="completed", cluster=CLUSTER, clique=4026), [],
        ),
        ({"status": 999}, replace(ON_A_BOARD, state="failed"), ["fabric-failed"]),
        (
            {"state": pynvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS, "status": 999},
            replace(ON_A_BOARD, state="in_progress"), ["fabric-not_joined"],
        ),
        ({"state": pynvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED}, None, []),
    ],
)  # fmt: skip
def test_how_a_gpu_is_joined_to_others_is_read_of_new_and_old_drivers(
    monkeypatch: pytest.MonkeyPatch, kind: type[InADomain], told: dict[str, Any], fabric: GpuFabric | None,
    signals: list[str],
) -> None:  # fmt: skip
    driver = kind()
    vars(driver).update(told)
    monkeypatch.setattr(pynvml, "nvmlLib", driver)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    gpu = Nvml().read().gpus["0000:01:00.0"]
    assert (gpu.fabric, [signal.name for signal in gpu.signals], gpu.problems) == (fabric, signals, ())
    with opened():
        device = pynvml.nvmlDeviceGetHandleByIndex(0)
        read = numbers(device, constants(device)).get(("gpu_fabric_completed", ""))
    assert read == (None if fabric is None else float(fabric.state == "completed"))
