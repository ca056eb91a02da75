# SPDX-License-Identifier: Apache-2.0
"""What can be asked about a GPU, by the names of ``--query-gpu``."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from .nvml import Nvml, or_na

SWITCH = ("Disabled", "Enabled")
VIRTUALIZATION = ("None", "Pass-Through", "VGPU", "Host VGPU", "Host VSGA")
HOST_MODE = ("Non SR-IOV", "SR-IOV")
ARCHITECTURES = {3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada Lovelace", 9: "Hopper"}

UNITS = {
    "memory.total": "MiB",
    "memory.used": "MiB",
    "memory.free": "MiB",
    "utilization.gpu": "%",
    "utilization.memory": "%",
    "power.draw": "W",
    "power.limit": "W",
    "power.default_limit": "W",
    "enforced.power.limit": "W",
    "power.min_limit": "W",
    "power.max_limit": "W",
}


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class Gpu:
    """One GPU's answers; every one is text, ``N/A`` where it has none."""

    def __init__(self, nvml: Nvml, index: int, device: Any) -> None:
        self.nvml = nvml
        self.index = index
        self.device = device
        self.pci = nvml.pci(device)
        self.bus_id: str = self.pci.bus_id.decode()

    def _text(self, name: str) -> str:
        return or_na(lambda: self.nvml.text(name, self.device))

    def _number(self, name: str) -> str:
        return or_na(lambda: self.nvml.number(name, self.device))

    def _switch(self, name: str) -> str:
        return or_na(lambda: SWITCH[self.nvml.number(name, self.device)])

    def _pair(self, name: str, which: int) -> str:
        return or_na(lambda: SWITCH[self.nvml.pair(name, self.device)[which]])

    def _watts(self, name: str) -> str:
        return or_na(lambda: f"{self.nvml.number(name, self.device) / 1000:.2f}")

    def _limit(self, which: int) -> str:
        name = "nvmlDeviceGetPowerManagementLimitConstraints"
        return or_na(lambda: f"{self.nvml.pair(name, self.device)[which] / 1000:.2f}")

    def _ecc(self, error: int) -> str:
        head = (self.device, error, 0)
        return or_na(lambda: self.nvml.number("nvmlDeviceGetTotalEccErrors", *head, kind=ctypes.c_ulonglong))

    def _utilization(self, which: str) -> str:
        rates = _Utilization()

        def ask() -> str:
            self.nvml.call("nvmlDeviceGetUtilizationRates", self.device, ctypes.byref(rates))
            return str(getattr(rates, which))

        return or_na(ask)

    def architecture(self) -> str:
        """NVIDIA's name of the generation."""
        number = self.nvml.number("nvmlDeviceGetArchitecture", self.device)
        return ARCHITECTURES.get(number, "Blackwell")

    def virtualization_mode(self) -> str:
        """How the GPU serves VMs."""
        return or_na(lambda: VIRTUALIZATION[self.nvml.number("nvmlDeviceGetVirtualizationMode", self.device)])

    def host_vgpu_mode(self) -> str:
        """Whether vGPUs live on virtual functions."""
        return or_na(lambda: HOST_MODE[self.nvml.number("nvmlDeviceGetHostVgpuMode", self.device)])

    def heterogeneous(self) -> str:
        """Whether sizes may be mixed."""
        return or_na(lambda: SWITCH[self.nvml.heterogeneous(self.device)])

    def answer(self, field: str) -> str:
        """The value of a ``--query-gpu`` field, without its unit; raises KeyError for an unknown field."""
        memory, pci = self.nvml.memory_mib(self.device), self.pci
        answers: dict[str, Callable[[], str]] = {
            "index": lambda: str(self.index),
            "count": lambda: str(self.nvml.number("nvmlDeviceGetCount_v2")),
            "name": lambda: self._text("nvmlDeviceGetName"),
            "gpu_name": lambda: self._text("nvmlDeviceGetName"),
            "uuid": lambda: self._text("nvmlDeviceGetUUID"),
            "gpu_uuid": lambda: self._text("nvmlDeviceGetUUID"),
            "serial": lambda: self._text("nvmlDeviceGetSerial"),
            "gpu_serial": lambda: self._text("nvmlDeviceGetSerial"),
            "driver_version": lambda: self.nvml.text("nvmlSystemGetDriverVersion"),
            "pci.bus_id": lambda: self.bus_id,
            "gpu_bus_id": lambda: self.bus_id,
            "pci.domain": lambda: f"0x{pci.domain:04X}",
            "pci.bus": lambda: f"0x{pci.bus:02X}",
            "pci.device": lambda: f"0x{pci.device:02X}",
            "pci.device_id": lambda: f"0x{pci.device_id:08X}",
            "pci.sub_device_id": lambda: f"0x{pci.subsystem_id:08X}",
            "memory.total": lambda: str(memory["total"]),
            "memory.used": lambda: str(memory["used"]),
            "memory.free": lambda: str(memory["free"]),
            "utilization.gpu": lambda: self._utilization("gpu"),
            "utilization.memory": lambda: self._utilization("memory"),
            "temperature.gpu": lambda: str(self.nvml.number("nvmlDeviceGetTemperature", self.device, 0)),
            "power.draw": lambda: self._watts("nvmlDeviceGetPowerUsage"),
            "power.limit": lambda: self._watts("nvmlDeviceGetPowerManagementLimit"),
            "power.default_limit": lambda: self._watts("nvmlDeviceGetPowerManagementDefaultLimit"),
            "enforced.power.limit": lambda: self._watts("nvmlDeviceGetEnforcedPowerLimit"),
            "power.min_limit": lambda: self._limit(0),
            "power.max_limit": lambda: self._limit(1),
            "persistence_mode": lambda: self._switch("nvmlDeviceGetPersistenceMode"),
            "compute_mode": lambda: "Default",
            "mig.mode.current": lambda: self._pair("nvmlDeviceGetMigMode", 0),
            "mig.mode.pending": lambda: self._pair("nvmlDeviceGetMigMode", 1),
            "ecc.mode.current": lambda: self._pair("nvmlDeviceGetEccMode", 0),
            "ecc.mode.pending": lambda: self._pair("nvmlDeviceGetEccMode", 1),
            "ecc.errors.corrected.volatile.total": lambda: self._ecc(0),
            "ecc.errors.uncorrected.volatile.total": lambda: self._ecc(1),
            "board_part_number": lambda: self._text("nvmlDeviceGetBoardPartNumber"),
            "minor_number": lambda: self._number("nvmlDeviceGetMinorNumber"),
            "module_id": lambda: self._number("nvmlDeviceGetModuleId"),
        }
        return answers[field]()
