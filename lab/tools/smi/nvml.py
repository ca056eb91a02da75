# SPDX-License-Identifier: Apache-2.0
"""The NVML calls that the command needs, through ctypes: a lab host has no pynvml of its own."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

NOT_SUPPORTED = 3
IN_USE = 19
FUNCTION_NOT_FOUND = 13
_TEXT = 96
_NO_ID = 0xFFFFFFFF


class NvmlError(Exception):
    """A call that NVML refused; ``code`` is NVML's number."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class _PciInfo(ctypes.Structure):
    _fields_ = (
        ("legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("device_id", ctypes.c_uint),
        ("subsystem_id", ctypes.c_uint),
        ("bus_id", ctypes.c_char * 32),
    )


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Versioned(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint), ("value", ctypes.c_uint))


class _Expiry(ctypes.Structure):
    _fields_ = (
        ("year", ctypes.c_uint),
        *((part, ctypes.c_ushort) for part in ("month", "day", "hour", "min", "sec")),
        ("status", ctypes.c_ubyte),
    )


class _LicenceInfo(ctypes.Structure):
    _fields_ = (("licensed", ctypes.c_ubyte), ("expiry", _Expiry), ("state", ctypes.c_uint))


class Nvml:
    """The library, initialised; use as a context manager so that no client stays behind."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libnvidia-ml.so.1")
        self._library.nvmlErrorString.restype = ctypes.c_char_p

    def __enter__(self) -> Nvml:
        self.call("nvmlInit_v2")
        return self

    def __exit__(self, *_: object) -> None:
        self._library.nvmlShutdown()

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; raises NvmlError for every answer but success."""
        function: Callable[..., int] | None = getattr(self._library, name, None)
        if function is None:
            raise NvmlError(FUNCTION_NOT_FOUND, "Function Not Found")
        code = function(*arguments)
        if code:
            raise NvmlError(code, self._library.nvmlErrorString(code).decode())

    def number(self, name: str, *head: Any, kind: type[Any] = ctypes.c_uint) -> int:
        """The one number that a function fills in."""
        value = kind(0)
        self.call(name, *head, ctypes.byref(value))
        return int(value.value)

    def pair(self, name: str, *head: Any, kind: type[Any] = ctypes.c_uint) -> tuple[int, int]:
        """The two numbers that a function fills in."""
        first, second = kind(0), kind(0)
        self.call(name, *head, ctypes.byref(first), ctypes.byref(second))
        return int(first.value), int(second.value)

    def text(self, name: str, *head: Any, by_reference: bool = False) -> str:
        """The text that a function fills in; some take the size by reference."""
        buffer, size = ctypes.create_string_buffer(_TEXT), ctypes.c_uint(_TEXT)
        self.call(name, *head, buffer, ctypes.byref(size) if by_reference else size)
        return buffer.value.decode()

    def ids(self, name: str, device: Any) -> list[int]:
        """The list of ids that a function fills in."""
        count = ctypes.c_uint(256)
        values = (ctypes.c_uint * 256)()
        self.call(name, device, ctypes.byref(count), values)
        return list(values[: count.value])

    def devices(self) -> list[Any]:
        """A handle per GPU, in index order."""
        handles = []
        for index in range(self.number("nvmlDeviceGetCount_v2")):
            handle = ctypes.c_void_p()
            self.call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle))
            handles.append(handle)
        return handles

    def pci(self, device: Any) -> _PciInfo:
        """Address and ids of a GPU."""
        info = _PciInfo()
        self.call("nvmlDeviceGetPciInfo_v3", device, ctypes.byref(info))
        return info

    def memory_mib(self, device: Any) -> dict[str, int]:
        """Total, used and free memory in MiB."""
        info = _Memory()
        self.call("nvmlDeviceGetMemoryInfo", device, ctypes.byref(info))
        return {name: int(getattr(info, name)) >> 20 for name in ("total", "used", "free")}

    def heterogeneous(self, device: Any) -> bool:
        """Whether sizes may be mixed on a GPU."""
        mode = _Versioned(version=0x1000008)
        self.call("nvmlDeviceGetVgpuHeterogeneousMode", device, ctypes.byref(mode))
        return bool(mode.value)

    def set_heterogeneous(self, device: Any, value: int) -> None:
        """Switch mixed sizes on (1) or off (0)."""
        mode = _Versioned(version=0x1000008, value=value)
        self.call("nvmlDeviceSetVgpuHeterogeneousMode", device, ctypes.byref(mode))

    def placement_id(self, vgpu: int) -> int:
        """Where on its GPU a vGPU lies."""
        placement = _Versioned(version=0x1000008)
        self.call("nvmlVgpuInstanceGetPlacementId", vgpu, ctypes.byref(placement))
        return int(placement.value)

    def licence(self, vgpu: int) -> str:
        """``Licensed (Expiry: 2027-1-31 12:0:0 GMT)`` or ``Unlicensed``."""
        info = _LicenceInfo()
        self.call("nvmlVgpuInstanceGetLicenseInfo_v2", vgpu, ctypes.byref(info))
        if not info.licensed:
            return "Unlicensed"
        end = info.expiry
        if not end.year:
            return "Licensed (Expiry: Permanent)"
        return f"Licensed (Expiry: {end.year}-{end.month}-{end.day} {end.hour}:{end.min}:{end.sec} GMT)"

    def vm_id(self, vgpu: int) -> str:
        """UUID of the VM that has a vGPU open."""
        buffer, kind = ctypes.create_string_buffer(_TEXT), ctypes.c_uint()
        self.call("nvmlVgpuInstanceGetVmID", vgpu, buffer, _TEXT, ctypes.byref(kind))
        return buffer.value.decode()


def or_na(read: Callable[[], object], unit: str = "") -> str:
    """What ``read`` returns, or ``N/A`` where the GPU or the library cannot say."""
    try:
        value = read()
    except NvmlError as error:
        if error.code in {NOT_SUPPORTED, FUNCTION_NOT_FOUND}:
            return "N/A"
        raise
    return f"{value} {unit}".rstrip() if value != _NO_ID else "N/A"
