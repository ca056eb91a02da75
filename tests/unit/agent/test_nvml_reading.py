# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: N802 - functions are called as in NVML
"""pynvml on a library object of our own: what a driver of any age may answer."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import pynvml
import pytest

from orchestrator.agent.nvml.reading import Nvml

OK, NOT_SUPPORTED, GPU_LOST, UNINITIALIZED, TOO_SMALL = 0, 3, 15, 1, 7


class OldDriver:
    """Two GPUs. Functions that are not here are what an old driver lacks; the second GPU is lost."""

    def __init__(self) -> None:
        self.open = 0

    def nvmlInitWithFlags(self, _flags: object) -> int:
        self.open += 1
        return OK

    def nvmlShutdown(self) -> int:
        self.open -= 1
        return OK

    def nvmlErrorString(self, result: int) -> bytes:
        return {GPU_LOST: b"GPU is lost", UNINITIALIZED: b"Uninitialized"}.get(result, b"Error")

    def nvmlSystemGetDriverVersion(self, text: Any, _size: object) -> int:
        text.value = b"535.1"
        return OK

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = 2
        return OK

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:
        ctypes.cast(handle, ctypes.POINTER(ctypes.c_void_p))[0] = 0x100 + index.value
        return OK

    def nvmlDeviceGetPciInfo_v3(self, handle: Any, info: Any) -> int:
        number = ctypes.cast(handle, ctypes.c_void_p).value or 0
        info._obj.busId = f"00000000:0{number - 0x100 + 1}:00.0".encode()
        return OK

    def _lost(self, handle: Any) -> bool:
        return ctypes.cast(handle, ctypes.c_void_p).value == 0x101

    def nvmlDeviceGetName(self, handle: Any, text: Any, _size: object) -> int:
        if self._lost(handle):
            return GPU_LOST
        text.value = b"Tesla T4"
        return OK

    def nvmlDeviceGetMigMode(self, _handle: object, _current: object, _pending: object) -> int:
        return NOT_SUPPORTED

    def nvmlDeviceGetSupportedVgpus(self, handle: Any, count: Any, ids: Any) -> int:
        if self._lost(handle):
            return GPU_LOST
        count._obj.value = 1
        if ids is None:
            return TOO_SMALL
        ids[0] = 231
        return OK

    def nvmlVgpuTypeGetName(self, _type: object, text: Any, _size: object) -> int:
        text.value = b"GRID T4-2Q"
        return OK

    def nvmlVgpuTypeGetFramebufferSize(self, _type: object, size: Any) -> int:
        size._obj.value = 2048 * 1024 * 1024
        return OK

    def nvmlVgpuTypeGetMaxInstances(self, _handle: object, _type: object, most: Any) -> int:
        most._obj.value = 8
        return OK


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[OldDriver]:
    fake = OldDriver()
    monkeypatch.setattr(pynvml, "nvmlLib", fake)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    yield fake
    assert fake.open == 0, "an NVML client was left open"


class Boards(OldDriver):
    """Both GPUs answer; the second one's board is ``second``."""

    def __init__(self, second: int) -> None:
        super().__init__()
        self.second, self.asked = second, 0

    def _lost(self, _handle: Any) -> bool:
        return False

    def nvmlDeviceGetPciInfo_v3(self, handle: Any, info: Any) -> int:
        result = super().nvmlDeviceGetPciInfo_v3(handle, info)
        info._obj.pciDeviceId = 0x1EB810DE if ctypes.cast(handle, ctypes.c_void_p).value == 0x100 else self.second
        return result

    def nvmlVgpuTypeGetMaxInstances(self, handle: Any, _type: object, most: Any) -> int:
        self.asked += 1
        most._obj.value = 8 if ctypes.cast(handle, ctypes.c_void_p).value == 0x100 else 4
        return OK


@pytest.mark.parametrize(("second", "asked", "most"), [(0x1EB810DE, 1, [8, 8]), (0x26B510DE, 2, [8, 4])])
def test_how_many_of_a_type_a_board_holds_is_asked_once_for_each_board(
    monkeypatch: pytest.MonkeyPatch, second: int, asked: int, most: list[int]
) -> None:
    driver = Boards(second)
    monkeypatch.setattr(pynvml, "nvmlLib", driver)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    gpus = Nvml().read().gpus
    assert [gpus[address].types[0].max_instances for address in sorted(gpus)] == most
    assert driver.asked == asked


def test_what_the_driver_lacks_is_absent_and_no_problem(driver: OldDriver) -> None:
    reading = Nvml().read()
    assert (reading.driver_version, reading.problems) == ("535.1", ())
    gpu = reading.gpus["0000:01:00.0"]
    assert (gpu.name, gpu.mig_enabled, gpu.heterogeneous, gpu.serial, gpu.problems) == (
        "Tesla T4",
        None,
        None,
        None,
        (),
    )
    assert [(t.name, t.type_id, t.framebuffer_mib, t.max_instances) for t in gpu.types] == [
        ("GRID T4-2Q", 231, 2048, 8)
    ]


@pytest.mark.fault("F87")
def test_a_lost_gpu_is_listed_with_its_problems(driver: OldDriver) -> None:
    gpu = Nvml().read().gpus["0000:02:00.0"]
    assert (gpu.name, gpu.types) == (None, ())
    assert any("lost" in problem.lower() for problem in gpu.problems)


def test_a_gpu_lost_while_the_library_is_closed_costs_nothing(
    driver: OldDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost() -> int:
        driver.open -= 1
        return GPU_LOST

    monkeypatch.setattr(driver, "nvmlShutdown", lost)
    reading = Nvml().read()
    assert reading.gpus["0000:01:00.0"].name == "Tesla T4"
    assert reading.problems == ()


@pytest.mark.parametrize("call", ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetPciInfo_v3"])
def test_a_gpu_that_is_lost_when_it_is_listed_is_no_problem_of_the_host(
    driver: OldDriver, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    real, asked = getattr(driver, call), []

    def lost(*given: Any) -> int:
        asked.append(given)
        return GPU_LOST if len(asked) == 2 else int(real(*given))

    monkeypatch.setattr(driver, call, lost)
    reading = Nvml().read()
    assert list(reading.gpus) == ["0000:01:00.0"]
    assert (reading.problems, len(reading.unplaced)) == ((), 1)


@pytest.mark.fault("F87")
def test_a_gpu_that_answers_rubbish_costs_that_gpu_alone(driver: OldDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    def garbled(handle: Any, text: Any, size: object) -> int:
        if driver._lost(handle):
            text.value = b"\xff\xfe\x80"
            return OK
        return OldDriver.nvmlDeviceGetName(driver, handle, text, size)

    monkeypatch.setattr(driver, "nvmlDeviceGetName", garbled)
    reading = Nvml().read()
    assert reading.gpus["0000:01:00.0"].name == "Tesla T4"
    assert any("NVML name" in problem for problem in reading.gpus["0000:02:00.0"].problems)


class Endless(Boards):
    """The second GPU tells the largest numbers there are, as drivers tell of what they do not know."""

    def _told(self, handle: Any, number: int, most: int) -> int:
        return number if ctypes.cast(handle, ctypes.c_void_p).value == 0x100 else most

    def nvmlDeviceGetMemoryInfo(self, handle: Any, info: Any) -> int:
        info._obj.total = self._told(handle, 15360 * 1024 * 1024, 2**64 - 1)
        return OK

    def nvmlDeviceGetModuleId(self, handle: Any, number: Any) -> int:
        number._obj.value = self._told(handle, 1, 2**32 - 1)
        return OK

    def nvmlVgpuTypeGetMaxInstances(self, handle: Any, _type: object, most: Any) -> int:
        most._obj.value = self._told(handle, 8, 2**32 - 1)
        return OK


@pytest.mark.fault("F87")
def test_numbers_that_no_gpu_has_are_unknown_and_a_problem_of_that_gpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlLib", Endless(0x26B510DE))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    first, second = Nvml().read().gpus.values()
    assert (first.memory_mib, first.module_id, len(first.types)) == (15360, 1, 1)
    assert (second.memory_mib, second.module_id, second.types) == (None, None, ())
    assert len(second.problems) == 3


class Computing(Boards):
    """What a board without a display engine says of processes."""

    def nvmlDeviceGetHandleByPciBusId_v2(self, _address: object, handle: Any) -> int:
        ctypes.cast(handle, ctypes.POINTER(ctypes.c_void_p))[0] = 0x100
        return OK

    def nvmlDeviceGetComputeRunningProcesses_v3(self, _handle: object, count: Any, found: Any) -> int:
        count._obj.value = 1
        if found is None:
            return TOO_SMALL
        found[0].pid = 4242
        return OK

    def nvmlDeviceGetGraphicsRunningProcesses_v3(self, *_given: object) -> int:
        return NOT_SUPPORTED


def test_who_computes_is_told_of_a_gpu_that_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlLib", Computing(0x26B510DE))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    assert Nvml().processes("0000:01:00.0") == (4242,)


@pytest.mark.fault("F87")
def test_a_driver_that_does_not_answer_is_a_reading_with_a_problem(
    driver: OldDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "nvmlInitWithFlags", lambda _flags: 9)
    reading = Nvml().read()
    assert (reading.driver_version, dict(reading.gpus)) == (None, {})
    assert "driver" in reading.problems[0].lower()


def test_type_names_are_kept_from_the_last_reading(driver: OldDriver) -> None:
    nvml = Nvml()
    assert nvml.type_names() == {231: "GRID T4-2Q"}


def test_what_a_type_is_called_is_asked_once_for_all_gpus(driver: OldDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def name(type_id: Any, text: Any, _size: object) -> int:
        asked.append(int(type_id))
        text.value = b"GRID T4-2Q"
        return OK

    monkeypatch.setattr(driver, "_lost", lambda _handle: False)
    monkeypatch.setattr(driver, "nvmlVgpuTypeGetName", name)
    reading = Nvml().read()
    assert [[one.name for one in gpu.types] for gpu in reading.gpus.values()] == [["GRID T4-2Q"]] * 2
    assert asked == [231]


class WithMetadata(OldDriver):
    """Its GPUs have ECC, and say whether vGPUs of them move with their state."""

    def __init__(self, caps: int) -> None:
        super().__init__()
        self.caps = caps

    def nvmlDeviceGetEccMode(self, _handle: object, current: Any, pending: Any) -> int:
        current._obj.value, pending._obj.value = 1, 0
        return OK

    def nvmlDeviceGetVgpuMetadata(self, _handle: object, metadata: Any, size: Any) -> int:
        if size._obj.value < ctypes.sizeof(pynvml.c_nvmlVgpuPgpuMetadata_t):
            size._obj.value = ctypes.sizeof(pynvml.c_nvmlVgpuPgpuMetadata_t)
            return TOO_SMALL
        pynvml.c_nvmlVgpuPgpuMetadata_t.from_buffer(metadata).pgpuVirtualizationCaps = self.caps
        return OK


@pytest.mark.parametrize(("caps", "moves"), [(1, True), (3, True), (2, False)])
def test_whether_vgpus_move_with_their_state_is_what_the_driver_says(
    monkeypatch: pytest.MonkeyPatch, caps: int, moves: bool
) -> None:
    monkeypatch.setattr(pynvml, "nvmlLib", WithMetadata(caps))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    gpu = Nvml().read().gpus["0000:01:00.0"]
    assert (gpu.ecc, gpu.moves_vgpus) == (True, moves)


def test_an_old_driver_does_not_say_whether_vgpus_move(driver: OldDriver) -> None:
    gpu = Nvml().read().gpus["0000:01:00.0"]
    assert (gpu.ecc, gpu.moves_vgpus) == (None, None)
