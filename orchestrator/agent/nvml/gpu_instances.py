# SPDX-License-Identifier: Apache-2.0
"""GPU instances of one GPU through NVML: found, made at a place, destroyed. NVML is open meanwhile.

A profile is known by its name only: its id and its place in NVML's own list differ between GPU models.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from ctypes import byref, c_uint
from dataclasses import dataclass, replace
from typing import Any

import pynvml

_MAX_PROFILES = 64
"""NVML answers INVALID_ARGUMENT where its list ends; this is far behind that."""


@dataclass(frozen=True, kw_only=True)
class FoundInstance:
    """``start`` and ``size`` are memory slots."""

    id: int
    profile: str
    start: int
    size: int
    compute: tuple[int, ...]
    devices: tuple[str, ...] = ()
    """UUIDs of its MIG devices: what CUDA_VISIBLE_DEVICES and container runtimes name."""
    capabilities: tuple[str, ...] = ()
    """Files below /proc that say which device files open it: of the instance, then of its compute instances."""


def device_at(address: str) -> Any:
    """:raises pynvml.NVMLError: no such GPU, or it is lost"""
    return pynvml.nvmlDeviceGetHandleByPciBusId(address.encode())


def mig_modes(device: Any) -> tuple[bool, bool]:
    """(now, after the next reset). :raises pynvml.NVMLError: NOT_SUPPORTED where there is no MIG"""
    current, pending = pynvml.nvmlDeviceGetMigMode(device)
    return bool(current), bool(pending)


def set_mig_mode(device: Any, *, on: bool) -> int:
    """NVML's status of the activation: not 0 when the mode stays pending."""
    return int(pynvml.nvmlDeviceSetMigMode(device, int(on)))


def instances(device: Any) -> tuple[FoundInstance, ...]:
    """All, by where they begin."""
    existing = [
        _found(handle, _name(profile)) for profile in _profiles(device) for handle in _handles_of(device, profile)
    ]
    devices = _mig_devices(device) if existing else {}
    minor = _minor(device) if existing else None
    return tuple(
        replace(instance, devices=tuple(devices.get(instance.id, ())), capabilities=_capabilities(minor, instance))
        for instance in sorted(existing, key=lambda instance: (instance.start, instance.id))
    )


def most_vgpus(device: Any, profile: str) -> int:
    """The most vGPUs of one type that an instance of the profile takes; a driver that does not say takes one."""
    ids = {profile_info.id for profile_info in _profiles(device) if _name(profile_info) == profile}
    most = [1]
    for type_id in pynvml.nvmlDeviceGetSupportedVgpus(device) if ids else ():
        with suppress(pynvml.NVMLError):  # a time-sliced type, or a driver from before there were several
            if pynvml.nvmlVgpuTypeGetGpuInstanceProfileId(type_id) in ids:
                most.append(int(pynvml.nvmlVgpuTypeGetMaxInstancesPerGpuInstance(type_id)))
    return max(most)


def create(device: Any, profile: str, start: int) -> None:
    """The instance at its place, with a compute instance that takes all of it. Without that one it is taken back.

    :raises pynvml.NVMLError: INVALID_ARGUMENT where the GPU has no such profile
    """
    wanted = next((info for info in _profiles(device) if _name(info) == profile), None)
    places = () if wanted is None else _places(device, wanted)
    place = next((position for position in places if position.start == start), None)
    if wanted is None or place is None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    handle = pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(device, wanted.id, byref(place))
    try:
        _fill(handle)
    except pynvml.NVMLError:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlGpuInstanceDestroy(handle)
        raise


def fill(device: Any, instance_id: int) -> None:
    """A compute instance that takes all of a GPU instance."""
    _fill(pynvml.nvmlDeviceGetGpuInstanceById(device, instance_id))


def destroy(device: Any, instance_id: int) -> None:
    """Compute instances first: with them the driver says that it is in use."""
    handle = pynvml.nvmlDeviceGetGpuInstanceById(device, instance_id)
    for compute in _compute_instances(handle):
        pynvml.nvmlComputeInstanceDestroy(compute)
    pynvml.nvmlGpuInstanceDestroy(handle)


def profile_names(device: Any) -> tuple[str, ...]:
    """Of all GPU-instance profiles that the driver has for the GPU, whatever is on it now."""
    return tuple(_name(profile) for profile in _profiles(device))


def _profiles(device: Any) -> Iterator[Any]:
    for number in range(_MAX_PROFILES):
        try:
            yield pynvml.nvmlDeviceGetGpuInstanceProfileInfo(device, number)
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_INVALID_ARGUMENT:
                return
            if error.value != pynvml.NVML_ERROR_NOT_SUPPORTED:
                raise


def _name(profile: Any) -> str:
    """``1g.10gb`` of ``MIG 1g.10gb``."""
    text = profile.name
    return str(text.decode(errors="replace") if isinstance(text, bytes) else text).removeprefix("MIG ")


def _handles_of(device: Any, profile: Any) -> list[Any]:
    return _listed(
        pynvml.c_nvmlGpuInstance_t,
        profile.instanceCount,
        lambda array, count: pynvml.nvmlDeviceGetGpuInstances(device, profile.id, array, count),
    )


def _places(device: Any, profile: Any) -> list[Any]:
    return _listed(
        pynvml.c_nvmlGpuInstancePlacement_t,
        _MAX_PROFILES,
        lambda array, count: pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(device, profile.id, array, count),
    )


def _found(handle: Any, profile: str) -> FoundInstance:
    info = pynvml.nvmlGpuInstanceGetInfo(handle)
    compute = sorted(
        int(pynvml.nvmlComputeInstanceGetInfo(compute_instance).id) for compute_instance in _compute_instances(handle)
    )
    place = info.placement
    return FoundInstance(
        id=int(info.id), profile=profile, start=int(place.start), size=int(place.size), compute=tuple(compute)
    )


def _mig_devices(device: Any) -> dict[int, list[str]]:
    """GPU instance → UUIDs of the MIG devices in it. A driver that tells none has none."""
    devices: dict[int, list[str]] = {}
    with suppress(pynvml.NVMLError):
        for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(device)):
            with suppress(pynvml.NVMLError):  # a place without a device
                one = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(device, index)
                uuid = str(pynvml.nvmlDeviceGetUUID(one))
                devices.setdefault(int(pynvml.nvmlDeviceGetGpuInstanceId(one)), []).append(uuid)
    return devices


def _minor(device: Any) -> int | None:
    try:
        return int(pynvml.nvmlDeviceGetMinorNumber(device))
    except pynvml.NVMLError:
        return None


def _capabilities(minor: int | None, one: FoundInstance) -> tuple[str, ...]:
    """MIG User Guide, "Device nodes and capabilities": gpu<minor>/mig/gi<id>[/ci<id>]/access."""
    if minor is None:
        return ()
    instance = f"/proc/driver/nvidia/capabilities/gpu{minor}/mig/gi{one.id}"
    return (f"{instance}/access", *(f"{instance}/ci{number}/access" for number in one.compute))


def _compute_profiles(handle: Any) -> Iterator[Any]:
    shared = pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    for number in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        with suppress(pynvml.NVMLError):  # one that such an instance has no room for
            yield pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(handle, number, shared, version=1)


def _compute_instances(handle: Any) -> list[Any]:
    compute = []
    for profile in _compute_profiles(handle):
        compute += _listed(
            pynvml.c_nvmlComputeInstance_t,
            profile.instanceCount,
            lambda array, count, its=profile: pynvml.nvmlGpuInstanceGetComputeInstances(handle, its.id, array, count),
        )
    return compute


def _fill(handle: Any) -> None:
    """:raises pynvml.NVMLError: as the driver answers"""
    whole = max(_compute_profiles(handle), key=lambda profile: profile.sliceCount, default=None)
    if whole is None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    pynvml.nvmlGpuInstanceCreateComputeInstance(handle, whole.id)


def _listed(kind: Any, most: int, fill_in: Any) -> list[Any]:
    """What an NVML function writes into an array and a count."""
    array, count = (kind * most)(), c_uint(most)
    fill_in(array, byref(count))
    return [array[number] for number in range(min(most, count.value))]
