# SPDX-License-Identifier: Apache-2.0
"""What one GPU does now, as NVML says it: rows ``gpu_…`` of core/readings/quantities.py. NVML is open meanwhile.

Drivers differ in what they answer: absent is absent, never 0 (nvml.h: NVML_ERROR_NOT_SUPPORTED, FUNCTION_NOT_FOUND).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pynvml

from orchestrator.agent.nvml.asking import answer_of
from orchestrator.agent.nvml.fabric import fabric_of
from orchestrator.core.readings.frame import Key
from orchestrator.core.readings.quantities import CLOCK_REASONS, RECOVERY_ACTIONS

MAX_LINKS: Final = 36
_PER_CENT, _MILLI, _MEGA, _NANO = 0.01, 1e-3, 1e6, 1e-9
_FIRST_REASON: Final = pynvml.NVML_FI_DEV_PERF_POLICY_POWER
_PENDING: Final = pynvml.NVML_FI_DEV_REMAPPED_PENDING
_RECOVERY: Final = pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
_FIELDS: Final[Mapping[int, tuple[Key, float]]] = {
    pynvml.NVML_FI_DEV_MEMORY_TEMP: (("gpu_temperature_celsius", "memory"), 1),
    pynvml.NVML_FI_DEV_POWER_INSTANT: (("gpu_power_watts", ""), _MILLI),
    pynvml.NVML_FI_DEV_POWER_MIN_LIMIT: (("gpu_power_limit_watts", "min"), _MILLI),
    pynvml.NVML_FI_DEV_POWER_MAX_LIMIT: (("gpu_power_limit_watts", "max"), _MILLI),
    pynvml.NVML_FI_DEV_POWER_DEFAULT_LIMIT: (("gpu_power_limit_watts", "default"), _MILLI),
    pynvml.NVML_FI_DEV_POWER_REQUESTED_LIMIT: (("gpu_power_limit_watts", "requested"), _MILLI),
    pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION: (("gpu_energy_joules_total", ""), _MILLI),
    pynvml.NVML_FI_DEV_PCIE_REPLAY_COUNTER: (("gpu_pcie_replays_total", ""), 1),
    pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES: (("gpu_pcie_sent_bytes_total", ""), 1),
    pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES: (("gpu_pcie_received_bytes_total", ""), 1),
    pynvml.NVML_FI_DEV_REMAPPED_COR: (("gpu_remapped_rows", "corrected"), 1),
    pynvml.NVML_FI_DEV_REMAPPED_UNC: (("gpu_remapped_rows", "uncorrected"), 1),
    _PENDING: (("gpu_remap_pending", ""), 1),
    pynvml.NVML_FI_DEV_REMAPPED_FAILURE: (("gpu_remap_failed", ""), 1),
    **{
        _FIRST_REASON + number: (("gpu_clock_limited_seconds_total", reason), _NANO)
        for number, reason in enumerate(CLOCK_REASONS)
    },
}
"""Field → what it is, and its unit in ours (nvml.h, NVML_FI_DEV_*)."""
_LINK_ERRORS: Final = (
    pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY,
    pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY,
    pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_CRC,
)
_LINK_STATE: Final = pynvml.NVML_FI_DEV_NVLINK_GET_STATE
_SIGNED: Final = (pynvml.NVML_VALUE_TYPE_SIGNED_INT, pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG)
_MEMBERS: Final = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: "usVal",
}
_LIMITS: Final = {
    "slowdown": pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN,
    "shutdown": pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN,
    "max_operating": pynvml.NVML_TEMPERATURE_THRESHOLD_GPU_MAX,
    "memory_max": pynvml.NVML_TEMPERATURE_THRESHOLD_MEM_MAX,
}
_CLOCKS: Final = {
    "graphics": pynvml.NVML_CLOCK_GRAPHICS,
    "sm": pynvml.NVML_CLOCK_SM,
    "memory": pynvml.NVML_CLOCK_MEM,
    "video": pynvml.NVML_CLOCK_VIDEO,
}
_BANKS: Final = ("max", "high", "partial", "low", "none")

Numbers = dict[Key, float]


@dataclass(frozen=True, kw_only=True)
class GpuConstants:
    """What stays as long as the driver is loaded."""

    uuid: str
    facts: Mapping[str, str]
    numbers: Mapping[Key, float]
    links: int
    has_gpm: bool
    fields: tuple[tuple[int, int], ...]
    """(field, scope) of all that are asked in one call."""


def constants(device: Any) -> GpuConstants:
    """:raises pynvml.NVMLError: the GPU does not say which it is"""
    uuid = str(pynvml.nvmlDeviceGetUUID(device))
    texts = {
        "driver_version": answer_of(pynvml.nvmlSystemGetDriverVersion),
        "name": answer_of(lambda: pynvml.nvmlDeviceGetName(device)),
        "vbios_version": answer_of(lambda: pynvml.nvmlDeviceGetVbiosVersion(device)),
    }
    numbers: Numbers = {}
    for label, threshold in _LIMITS.items():
        _put(numbers, "gpu_temperature_limit_celsius", label, partial(_threshold, device, threshold))
    _put(numbers, "gpu_pcie_link_width_max", "", lambda: pynvml.nvmlDeviceGetMaxPcieLinkWidth(device))
    (links,) = field_values(device, ((pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT, 0),)) or (None,)
    count = min(MAX_LINKS, int(links or 0))
    per_link = tuple((field, link) for link in range(count) for field in (*_LINK_ERRORS, _LINK_STATE))
    return GpuConstants(
        uuid=uuid,
        facts={name: str(text) for name, text in texts.items() if text},
        numbers=numbers,
        links=count,
        has_gpm=bool(answer_of(lambda: pynvml.nvmlGpmQueryDeviceSupport(device).isSupportedDevice)),
        fields=(*((field, 0) for field in (*_FIELDS, _RECOVERY)), *per_link),
    )


def numbers(device: Any, known: GpuConstants) -> Numbers:
    """All that the driver says now."""
    numbers = dict(known.numbers)
    for read in (_utilization, _memory, _heat, _clocks, _errors, _fabric):
        numbers.update(read(device))
    numbers.update(_fields(device, known))
    return numbers


def _put(numbers: Numbers, name: str, label: str, function: Callable[[], Any], unit: float = 1) -> None:
    answer = answer_of(function)
    if answer is not None:
        numbers[name, label] = float(answer) * unit


def _threshold(device: Any, threshold: int) -> int:
    return int(pynvml.nvmlDeviceGetTemperatureThreshold(device, threshold))


def _utilization(device: Any) -> Numbers:
    numbers: Numbers = {}
    rates = answer_of(lambda: pynvml.nvmlDeviceGetUtilizationRates(device))
    if rates is not None:
        numbers["gpu_utilization_ratio", ""] = rates.gpu * _PER_CENT
        numbers["gpu_memory_copy_ratio", ""] = rates.memory * _PER_CENT
    _put(numbers, "gpu_encoder_ratio", "", lambda: pynvml.nvmlDeviceGetEncoderUtilization(device)[0], _PER_CENT)
    _put(numbers, "gpu_decoder_ratio", "", lambda: pynvml.nvmlDeviceGetDecoderUtilization(device)[0], _PER_CENT)
    return numbers


def _memory(device: Any) -> Numbers:
    """What the driver keeps for itself is told by newer drivers alone, and is then no part of what is used."""
    memory = answer_of(lambda: pynvml.nvmlDeviceGetMemoryInfo(device, version=pynvml.nvmlMemory_v2))
    if memory is None:
        memory = answer_of(lambda: pynvml.nvmlDeviceGetMemoryInfo(device))
    parts = ("used", "free", "total", "reserved")
    return {(f"gpu_memory_{part}_bytes", ""): float(getattr(memory, part)) for part in parts if hasattr(memory, part)}


def _heat(device: Any) -> Numbers:
    numbers: Numbers = {}
    sensor = pynvml.NVML_TEMPERATURE_GPU
    celsius = answer_of(lambda: pynvml.nvmlDeviceGetTemperatureV(device, sensor))
    if celsius is None:
        celsius = answer_of(lambda: pynvml.nvmlDeviceGetTemperature(device, sensor))
    if celsius is not None:
        numbers["gpu_temperature_celsius", "gpu"] = float(celsius)
    _put(numbers, "gpu_temperature_margin_celsius", "", lambda: pynvml.nvmlDeviceGetMarginTemperature(device))
    _put(numbers, "gpu_power_watts", "", lambda: pynvml.nvmlDeviceGetPowerUsage(device), _MILLI)
    _put(numbers, "gpu_power_limit_watts", "enforced", lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(device), _MILLI)
    return numbers


def _clocks(device: Any) -> Numbers:
    numbers: Numbers = {}
    for label, clock in _CLOCKS.items():
        _put(numbers, "gpu_clock_hertz", label, partial(pynvml.nvmlDeviceGetClockInfo, device, clock), _MEGA)
    _put(numbers, "gpu_pcie_link_width", "", lambda: pynvml.nvmlDeviceGetCurrPcieLinkWidth(device))
    _put(numbers, "gpu_pcie_link_generation", "", lambda: pynvml.nvmlDeviceGetCurrPcieLinkGeneration(device))
    return numbers


def _errors(device: Any) -> Numbers:
    numbers: Numbers = {}
    kinds = {
        "corrected": pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED,
        "uncorrected": pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
    }
    for label, kind in kinds.items():
        ask = partial(pynvml.nvmlDeviceGetTotalEccErrors, device, kind, pynvml.NVML_VOLATILE_ECC)
        _put(numbers, "gpu_ecc_errors_total", label, ask)
    banks = answer_of(lambda: pynvml.nvmlDeviceGetRowRemapperHistogram(device))
    if banks is not None:
        numbers.update({("gpu_remap_banks", label): float(getattr(banks, label)) for label in _BANKS})
    return numbers


def _fabric(device: Any) -> Numbers:
    fabric = answer_of(lambda: fabric_of(device))
    return {} if fabric is None else {("gpu_fabric_completed", ""): float(fabric.state == "completed")}


def _fields(device: Any, known: GpuConstants) -> Numbers:
    numbers: Numbers = {}
    values = dict(zip(known.fields, field_values(device, known.fields), strict=False))
    for field, (key, unit) in _FIELDS.items():
        value = values.get((field, 0))
        if value is not None:
            numbers[key] = value * unit
    action = values.get((_RECOVERY, 0))
    if action is not None:
        numbers.update({("gpu_recovery_action", name): float(at == action) for at, name in _ACTIONS})
    for link in range(known.links):
        errors = [value for field in _LINK_ERRORS if (value := values.get((field, link))) is not None]
        state = values.get((_LINK_STATE, link))
        if errors:
            numbers["gpu_nvlink_errors_total", str(link)] = sum(errors)
        if state is not None:
            numbers["gpu_nvlink_up", str(link)] = float(state == pynvml.NVML_NVLINK_STATE_ACTIVE)
    return numbers


_ACTIONS: Final = tuple(enumerate(RECOVERY_ACTIONS))[1:]


def field_values(device: Any, fields: tuple[tuple[int, int], ...]) -> list[float | None]:
    """In their order; None: not supported. Nothing of a driver that has no fields."""
    answers = answer_of(lambda: pynvml.nvmlDeviceGetFieldValues(device, list(fields)))
    return [_value(answer) for answer in answers or ()]


def _value(answer: Any) -> float | None:
    member = _MEMBERS.get(answer.valueType)
    if answer.nvmlReturn != pynvml.NVML_SUCCESS or member is None:
        return None
    return float(getattr(answer.value, member))
