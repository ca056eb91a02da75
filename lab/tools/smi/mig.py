# SPDX-License-Identifier: Apache-2.0
"""``nvidia-smi mig``: profiles and instances of GPUs in MIG mode, and making and destroying instances."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

from .gpus import Gpu
from .nvml import NOT_SUPPORTED, Nvml, NvmlError

NOT_FOUND = 6
_PROFILE_NUMBERS = 0x12
"""NVML_GPU_INSTANCE_PROFILE_COUNT"""
_COMPUTE_NUMBERS = 8
_MOST = 64
_NONE_FOUND = "No MIG instances found\n"


class _Place(ctypes.Structure):
    _fields_ = (("start", ctypes.c_uint), ("size", ctypes.c_uint))


class _Profile(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint),
        ("id", ctypes.c_uint),
        ("p2p", ctypes.c_uint),
        *((name, ctypes.c_uint) for name in ("slices", "instances", "sms", "copies", "decoders", "encoders")),
        *((name, ctypes.c_uint) for name in ("jpegs", "ofas")),
        ("memory_mib", ctypes.c_ulonglong),
        ("name", ctypes.c_char * 96),
    )


class _ComputeProfile(ctypes.Structure):
    _fields_ = (
        ("id", ctypes.c_uint),
        ("slices", ctypes.c_uint),
        *((name, ctypes.c_uint) for name in ("instances", "sms", "copies", "decoders", "encoders", "jpegs", "ofas")),
    )


class _Instance(ctypes.Structure):
    _fields_ = (("device", ctypes.c_void_p), ("id", ctypes.c_uint), ("profile", ctypes.c_uint), ("place", _Place))


class _Compute(ctypes.Structure):
    _fields_ = (
        ("device", ctypes.c_void_p),
        ("gpu_instance", ctypes.c_void_p),
        ("id", ctypes.c_uint),
        ("profile", ctypes.c_uint),
        ("place", _Place),
    )


def _profiles(nvml: Nvml, gpu: Gpu) -> Iterator[_Profile]:
    for number in range(_PROFILE_NUMBERS):
        info = _Profile(version=ctypes.sizeof(_Profile) | 2 << 24)
        if _is_there(nvml, "nvmlDeviceGetGpuInstanceProfileInfoV", gpu.device, number, ctypes.byref(info)):
            yield info


def _compute_profiles(nvml: Nvml, instance: ctypes.c_void_p) -> Iterator[_ComputeProfile]:
    for number in range(_COMPUTE_NUMBERS):
        info = _ComputeProfile()
        name = "nvmlGpuInstanceGetComputeInstanceProfileInfo"
        if _is_there(nvml, name, instance, number, 0, ctypes.byref(info)):
            yield info


def _is_there(nvml: Nvml, name: str, *arguments: Any) -> bool:
    try:
        nvml.call(name, *arguments)
    except NvmlError as error:
        if error.code == NOT_SUPPORTED:
            return False
        raise
    return True


def _handles(nvml: Nvml, name: str, parent: Any, profile: int) -> list[ctypes.c_void_p]:
    found, count = (ctypes.c_void_p * _MOST)(), ctypes.c_uint()
    nvml.call(name, parent, profile, found, ctypes.byref(count))
    return [ctypes.c_void_p(handle) for handle in found[: count.value]]


def _instances(nvml: Nvml, gpu: Gpu) -> Iterator[tuple[ctypes.c_void_p, _Instance, str]]:
    for profile in _profiles(nvml, gpu):
        for handle in _handles(nvml, "nvmlDeviceGetGpuInstances", gpu.device, profile.id):
            info = _Instance()
            nvml.call("nvmlGpuInstanceGetInfo", handle, ctypes.byref(info))
            yield handle, info, profile.name.decode()


def _computes(nvml: Nvml, instance: ctypes.c_void_p) -> Iterator[tuple[ctypes.c_void_p, _Compute]]:
    for profile in _compute_profiles(nvml, instance):
        for handle in _handles(nvml, "nvmlGpuInstanceGetComputeInstances", instance, profile.id):
            info = _Compute()
            nvml.call("nvmlComputeInstanceGetInfo_v2", handle, ctypes.byref(info))
            yield handle, info


def profiles(nvml: Nvml, gpus: list[Gpu]) -> str:
    """``-lgip``: profile, id, free and most instances, memory."""
    rows = [
        (gpu.index, info.name.decode(), info.id, f"{_left(nvml, gpu, info.id)}/{info.instances}", info.memory_mib)
        for gpu in gpus
        for info in _profiles(nvml, gpu)
    ]
    return _table(("GPU", "Name", "ID", "Free/Total", "Memory MiB"), rows)


def _left(nvml: Nvml, gpu: Gpu, profile: int) -> int:
    return nvml.number("nvmlDeviceGetGpuInstanceRemainingCapacity", gpu.device, profile)


def gpu_instances(nvml: Nvml, gpus: list[Gpu]) -> str:
    """``-lgi``: profile, its id, the instance's id and place."""
    rows = [
        (gpu.index, name, info.profile, info.id, f"{info.place.start}:{info.place.size}")
        for gpu in gpus
        for _, info, name in _instances(nvml, gpu)
    ]
    return _table(("GPU", "Name", "Profile ID", "Instance ID", "Placement"), rows)


def compute_instances(nvml: Nvml, gpus: list[Gpu]) -> str:
    """``-lci``: by GPU instance."""
    rows = [
        (gpu.index, instance.id, info.profile, info.id, f"{info.place.start}:{info.place.size}")
        for gpu in gpus
        for handle, instance, _ in _instances(nvml, gpu)
        for _, info in _computes(nvml, handle)
    ]
    return _table(("GPU", "GPU Instance ID", "Profile ID", "Instance ID", "Placement"), rows)


def create_gpu_instances(nvml: Nvml, gpus: list[Gpu], asked: str, *, whole: bool) -> str:
    """``-cgi ID[:START],…``: by profile id; ``whole`` (``-C``): with a compute instance that takes all of it."""
    said = ""
    for gpu in gpus:
        for one in asked.split(","):
            profile, _, start = one.partition(":")
            handle = _made(nvml, gpu, int(profile), int(start) if start else None)
            info = _Instance()
            nvml.call("nvmlGpuInstanceGetInfo", handle, ctypes.byref(info))
            said += (
                f"Successfully created GPU instance ID {info.id:2} on GPU {gpu.index:2} using profile ID {profile}\n"
            )
            if whole:
                said += _made_compute(nvml, gpu, handle, info.id, _largest(nvml, handle))
    return said


def _made(nvml: Nvml, gpu: Gpu, profile: int, start: int | None) -> ctypes.c_void_p:
    handle = ctypes.c_void_p()
    if start is None:
        nvml.call("nvmlDeviceCreateGpuInstance", gpu.device, profile, ctypes.byref(handle))
        return handle
    places, count = (_Place * _MOST)(), ctypes.c_uint(_MOST)
    nvml.call("nvmlDeviceGetGpuInstancePossiblePlacements_v2", gpu.device, profile, places, ctypes.byref(count))
    place = _Place(start, places[0].size)
    nvml.call(
        "nvmlDeviceCreateGpuInstanceWithPlacement", gpu.device, profile, ctypes.byref(place), ctypes.byref(handle)
    )
    return handle


def create_compute_instances(nvml: Nvml, gpus: list[Gpu], asked: str, chosen: str | None) -> str:
    """``-cci [ID,…] [-gi ID]``: in all GPU instances or the chosen one; without an id one that takes all of it."""
    said = ""
    for gpu, handle, info in _among(nvml, gpus, chosen):
        profiles = [int(one) for one in asked.split(",")] if asked else [_largest(nvml, handle)]
        said += "".join(_made_compute(nvml, gpu, handle, info.id, profile) for profile in profiles)
    return said


def destroy_gpu_instances(nvml: Nvml, gpus: list[Gpu], chosen: str | None) -> str:
    """``-dgi [-gi ID]``: all or the chosen one; NVML refuses one that is in use or has compute instances."""
    said = ""
    for gpu, handle, info in _among(nvml, gpus, chosen):
        nvml.call("nvmlGpuInstanceDestroy", handle)
        said += f"Successfully destroyed GPU instance ID {info.id:2} from GPU {gpu.index:2}\n"
    return said


def destroy_compute_instances(nvml: Nvml, gpus: list[Gpu], chosen: str | None, compute: str | None) -> str:
    """``-dci [-gi ID] [-ci ID]``: all or the chosen ones."""
    said = ""
    for gpu, instance, info in _among(nvml, gpus, chosen):
        for handle, one in [*_computes(nvml, instance)]:
            if compute in {None, str(one.id)}:
                nvml.call("nvmlComputeInstanceDestroy", handle)
                said += f"Successfully destroyed compute instance ID {one.id:2} {_where(gpu, info.id, 'from')}\n"
    return said or _NONE_FOUND


def _among(nvml: Nvml, gpus: list[Gpu], chosen: str | None) -> list[tuple[Gpu, ctypes.c_void_p, _Instance]]:
    """GPU instances, or the one of this id; raises NvmlError where there is none."""
    found = [
        (gpu, handle, info)
        for gpu in gpus
        for handle, info, _ in _instances(nvml, gpu)
        if chosen in {None, str(info.id)}
    ]
    if not found:
        raise NvmlError(NOT_FOUND, "Not Found")
    return found


def _made_compute(nvml: Nvml, gpu: Gpu, instance: ctypes.c_void_p, gpu_instance: int, profile: int) -> str:
    handle, info = ctypes.c_void_p(), _Compute()
    nvml.call("nvmlGpuInstanceCreateComputeInstance", instance, profile, ctypes.byref(handle))
    nvml.call("nvmlComputeInstanceGetInfo_v2", handle, ctypes.byref(info))
    where = _where(gpu, gpu_instance, "on")
    return f"Successfully created compute instance ID {info.id:2} {where} using profile ID {profile}\n"


def _where(gpu: Gpu, gpu_instance: int, word: str) -> str:
    return f"{word} GPU {gpu.index:2} GPU instance ID {gpu_instance:2}"


def _largest(nvml: Nvml, instance: ctypes.c_void_p) -> int:
    return int(max(_compute_profiles(nvml, instance), key=lambda info: int(info.slices)).id)


def _table(heads: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> str:
    if not rows:
        return _NONE_FOUND
    lines = [heads, *(tuple(map(str, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "".join("  ".join(map(str.ljust, line, widths)).rstrip() + "\n" for line in lines)
