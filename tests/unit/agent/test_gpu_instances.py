# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: N802 - functions are called as in NVML
"""pynvml on a library object of our own: an A100 whose profiles have ids and places that no list of ours names."""

from __future__ import annotations

import ctypes
from typing import Any

import pynvml
import pytest

from orchestrator.agent.nvml.gpu_instances import FoundInstance, device_at, profile_names
from orchestrator.agent.nvml.mig import NvmlMig
from orchestrator.agent.nvml.reading import Nvml, opened
from orchestrator.core.errors import Conflict, Fatal, VgpuctlError

OK, INVALID, NOT_SUPPORTED, NOT_FOUND, IN_USE, NO_ROOM = 0, 2, 3, 6, 19, 23
GPU = "0000:41:00.0"
PROFILES = {0: ("MIG 1g.10gb", 77, 7, 1, tuple(range(7))), 4: ("MIG 1g.20gb", 5, 4, 2, (0, 2, 4, 6))}
"""Place in NVML's list → name, id, most, slots, starts."""
WHOLE = 9
"""Id of the compute instance that takes all of a GPU instance."""


class Driver:
    """Handles are numbers above 0x1000 of GPU instances and above 0x2000 of their compute instances."""

    def __init__(self) -> None:
        self.mig = 1
        self.stays_pending = False
        self.compute_refused = OK
        self.there: dict[int, tuple[int, int, bool]] = {}
        """GPU instance → id of its profile, start, whether it has a compute instance."""
        self.numbers = iter((6, 2, 11, 3))
        self.nvmlErrorString = lambda _result: b"Error"

    def nvmlInitWithFlags(self, _flags: object) -> int:
        return OK

    def nvmlShutdown(self) -> int:
        return OK

    def nvmlDeviceGetHandleByPciBusId_v2(self, _address: object, handle: Any) -> int:
        ctypes.cast(handle, ctypes.POINTER(ctypes.c_void_p))[0] = 0x100
        return OK

    def nvmlDeviceGetMigMode(self, _device: object, current: Any, pending: Any) -> int:
        current._obj.value = pending._obj.value = self.mig
        return OK

    def nvmlDeviceSetMigMode(self, _device: object, mode: int, status: Any) -> int:
        status._obj.value = IN_USE if self.stays_pending else OK
        self.mig = self.mig if self.stays_pending else mode
        return OK

    def nvmlDeviceGetGpuInstanceProfileInfoV(self, _device: object, number: int, info: Any) -> int:
        if number > 5:
            return INVALID
        if number not in PROFILES:
            return NOT_SUPPORTED
        name, its_id, most, _, _ = PROFILES[number]
        info._obj.name, info._obj.id, info._obj.instanceCount = name.encode(), its_id, most
        return OK

    def nvmlDeviceGetGpuInstancePossiblePlacements_v2(
        self, _device: object, its_id: int, found: Any, count: Any
    ) -> int:
        _, _, _, size, starts = _profile(its_id)
        for number, start in enumerate(starts):
            found[number].start, found[number].size = start, size
        count._obj.value = len(starts)
        return OK

    def nvmlDeviceCreateGpuInstanceWithPlacement(self, _device: object, its_id: int, place: Any, handle: Any) -> int:
        size = place._obj.size
        taken = {start + slot for other, start, _ in self.there.values() for slot in range(_profile(other)[3])}
        if not taken.isdisjoint(range(place._obj.start, place._obj.start + size)):
            return NO_ROOM
        number = next(self.numbers)
        self.there[number] = (its_id, place._obj.start, False)
        _put(handle, 0x1000 + number)
        return OK

    def nvmlDeviceGetGpuInstances(self, _device: object, its_id: int, found: Any, count: Any) -> int:
        numbers = [number for number, (other, _, _) in self.there.items() if other == its_id]
        for position, number in enumerate(numbers):
            ctypes.cast(found, ctypes.POINTER(ctypes.c_void_p))[position] = 0x1000 + number
        count._obj.value = len(numbers)
        return OK

    def nvmlDeviceGetGpuInstanceById(self, _device: object, number: int, handle: Any) -> int:
        _put(handle, 0x1000 + number)
        return OK

    def nvmlGpuInstanceGetInfo(self, handle: Any, info: Any) -> int:
        number = _number(handle)
        its_id, start, _ = self.there[number]
        info._obj.id, info._obj.profileId = number, its_id
        info._obj.placement.start, info._obj.placement.size = start, _profile(its_id)[3]
        return OK

    def nvmlGpuInstanceDestroy(self, handle: Any) -> int:
        if self.there[_number(handle)][2]:
            return IN_USE
        del self.there[_number(handle)]
        return OK

    def nvmlGpuInstanceGetComputeInstanceProfileInfo(self, _gi: object, number: int, _engines: int, info: Any) -> int:
        if number:
            return NOT_SUPPORTED
        info._obj.id, info._obj.sliceCount, info._obj.instanceCount = WHOLE, 1, 1
        return OK

    def nvmlGpuInstanceCreateComputeInstance(self, handle: Any, its_id: int, made: Any) -> int:
        if self.compute_refused:
            return self.compute_refused
        assert its_id == WHOLE
        self.there[_number(handle)] = (*self.there[_number(handle)][:2], True)
        _put(made, 0x2000 + _number(handle))
        return OK

    def nvmlGpuInstanceGetComputeInstances(self, handle: Any, _its_id: int, found: Any, count: Any) -> int:
        count._obj.value = int(self.there[_number(handle)][2])
        ctypes.cast(found, ctypes.POINTER(ctypes.c_void_p))[0] = 0x2000 + _number(handle)
        return OK

    def nvmlComputeInstanceGetInfo_v2(self, _handle: object, info: Any) -> int:
        info._obj.id = 0
        return OK

    def nvmlComputeInstanceDestroy(self, handle: Any) -> int:
        number = _number(handle) - 0x1000
        self.there[number] = (*self.there[number][:2], False)
        return OK


class TellingDriver(Driver):
    """Knows MIG devices as well; each GPU instance has one, at a place with gaps."""

    def nvmlDeviceGetMaxMigDeviceCount(self, _device: object, count: Any) -> int:
        count._obj.value = 7
        return OK

    def nvmlDeviceGetMigDeviceHandleByIndex(self, _device: object, index: Any, handle: Any) -> int:
        number = next((number for number, (_, start, _) in self.there.items() if start == index.value), None)
        if number is None:
            return NOT_FOUND
        _put(handle, 0x3000 + number)
        return OK

    def nvmlDeviceGetGpuInstanceId(self, handle: Any, number: Any) -> int:
        number._obj.value = _number(handle) - 0x2000
        return OK

    def nvmlDeviceGetUUID(self, handle: Any, text: Any, _size: object) -> int:
        text.value = f"MIG-{_number(handle) - 0x2000}".encode()
        return OK

    def nvmlDeviceGetMinorNumber(self, _device: object, number: Any) -> int:
        number._obj.value = 3
        return OK


def _profile(its_id: int) -> tuple[str, int, int, int, tuple[int, ...]]:
    return next(row for row in PROFILES.values() if row[1] == its_id)


def _put(handle: Any, value: int) -> None:
    ctypes.cast(handle, ctypes.POINTER(ctypes.c_void_p))[0] = value


def _number(handle: Any) -> int:
    return (ctypes.cast(handle, ctypes.c_void_p).value or 0) - 0x1000


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(pynvml, "nvmlLib", made)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return made


@pytest.fixture
def mig(driver: Driver) -> NvmlMig:
    assert driver.there == {}
    return NvmlMig(Nvml())


def test_containers_are_told_the_uuid_and_the_capability_files_of_an_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlLib", TellingDriver())
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    mig = NvmlMig(Nvml())
    mig.create(GPU, "1g.20gb", 4)
    mig.create(GPU, "1g.10gb", 0)
    first, second = mig.instances(GPU)
    assert (first.devices, second.devices) == (("MIG-2",), ("MIG-6",))
    base = "/proc/driver/nvidia/capabilities/gpu3/mig/gi2"
    assert first.capabilities == (f"{base}/access", f"{base}/ci0/access")


@pytest.mark.fault("F74", "F75")
def test_instances_are_found_by_place_and_named_by_profile_whatever_their_ids_are(mig: NvmlMig) -> None:
    mig.create(GPU, "1g.20gb", 4)
    mig.create(GPU, "1g.10gb", 0)
    assert mig.instances(GPU) == (
        FoundInstance(id=2, profile="1g.10gb", start=0, size=1, compute=(0,)),
        FoundInstance(id=6, profile="1g.20gb", start=4, size=2, compute=(0,)),
    )
    mig.destroy(GPU, 6)
    assert [one.id for one in mig.instances(GPU)] == [2]


@pytest.mark.usefixtures("mig")
def test_profiles_are_named_as_the_driver_names_them() -> None:
    with opened():
        assert profile_names(device_at(GPU)) == tuple(name.removeprefix("MIG ") for name, *_ in PROFILES.values())


@pytest.mark.fault("F71")
def test_a_gpu_instance_whose_compute_instance_fails_is_taken_away_again(mig: NvmlMig, driver: Driver) -> None:
    driver.compute_refused = NO_ROOM
    with pytest.raises(Fatal) as raised:
        mig.create(GPU, "1g.20gb", 4)
    assert raised.value.code == "gpu.instance_refused"
    assert driver.there == {}


def test_what_does_not_fit_is_refused_and_changes_nothing(mig: NvmlMig, driver: Driver) -> None:
    mig.create(GPU, "1g.20gb", 4)
    for profile, start in (("1g.10gb", 5), ("1g.20gb", 3), ("7g.80gb", 0)):
        with pytest.raises(Fatal) as raised:
            mig.create(GPU, profile, start)
        assert raised.value.code == "gpu.instance_refused"
    assert len(driver.there) == 1


def test_a_mode_that_stays_pending_is_read_back_as_it_is(mig: NvmlMig, driver: Driver) -> None:
    driver.stays_pending = True
    mig.set_mode(GPU, on=False)
    assert mig.modes(GPU) == (True, True)
    driver.stays_pending = False
    mig.set_mode(GPU, on=False)
    assert mig.modes(GPU) == (False, False)


@pytest.mark.parametrize(("answer", "family"), [(NOT_SUPPORTED, Fatal), (IN_USE, Conflict), (999, Fatal)])
def test_what_nvml_refuses_is_one_of_our_errors(
    mig: NvmlMig, driver: Driver, answer: int, family: type[VgpuctlError]
) -> None:
    driver.compute_refused = answer
    with pytest.raises(family):
        mig.create(GPU, "1g.10gb", 0)
