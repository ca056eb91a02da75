# SPDX-License-Identifier: Apache-2.0
"""What the vGPUs of a GPU do now, as the host's NVML says it: of those that running VMs have open. No guest has a word
in it. NVML is open meanwhile."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pynvml

from orchestrator.agent.nvml.asking import answer_of
from orchestrator.agent.nvml.gpu_readings import Numbers
from orchestrator.agent.nvml.health import moment
from orchestrator.core.names import is_uuid
from orchestrator.core.readings.frame import Reading, arranged

_PARTS: Final = {"sm": "smUtil", "memory_copy": "memUtil", "encoder": "encUtil", "decoder": "decUtil"}
_UNKNOWN_VERSIONS: Final = frozenset({"", "Not Available", "N/A"})

Samples = dict[int, Any]
"""vGPU instance → its newest sample."""


class OpenVgpus(NamedTuple):
    """``readings``: of those that say whose they are."""

    number: int
    readings: tuple[Reading, ...]


class VgpuReader:
    """Of one GPU. Remembers which samples it has had."""

    def __init__(self) -> None:
        self._last_us = 0

    def read(self, device: Any, gpu: str) -> OpenVgpus | None:
        """None: the GPU has no vGPUs, whatever runs. ``gpu``: its UUID."""
        active = answer_of(lambda: pynvml.nvmlDeviceGetActiveVgpus(device))
        if active is None:
            return None
        samples = self._newest(device) if active else {}
        readings = (_reading(int(vgpu), gpu, samples.get(int(vgpu))) for vgpu in active)
        return OpenVgpus(len(active), tuple(reading for reading in readings if reading is not None))

    def _newest(self, device: Any) -> Samples:
        """Drivers from before 535 have the older function alone."""
        newest: Samples = {}
        for sample in _first_answer(
            lambda: pynvml.nvmlDeviceGetVgpuInstancesUtilizationInfo(device, self._last_us),
            lambda: pynvml.nvmlDeviceGetVgpuUtilization(device, self._last_us),
        ):
            before = newest.get(sample.vgpuInstance)
            if before is None or before.timeStamp <= sample.timeStamp:
                newest[sample.vgpuInstance] = sample
        self._last_us = max((sample.timeStamp for sample in newest.values()), default=self._last_us)
        return newest


def _first_answer(*functions: Callable[[], list[Any]]) -> list[Any]:
    for function in functions:
        samples = answer_of(function)
        if samples is not None:
            return samples
    return []


def _reading(vgpu: int, gpu: str, sample: Any | None) -> Reading | None:
    """None: its VM has just ended, or the driver does not say which it is."""
    name = answer_of(lambda: pynvml.nvmlVgpuInstanceGetMdevUUID(vgpu)) or answer_of(
        lambda: pynvml.nvmlVgpuInstanceGetUUID(vgpu)
    )
    vm = answer_of(lambda: _text(pynvml.nvmlVgpuInstanceGetVmID(vgpu)[0]))
    if not name or not vm or not is_uuid(vm):
        return None
    numbers: Numbers = {}
    if sample is not None:
        numbers = {(f"vgpu_{part}_ratio", ""): getattr(sample, field).uiVal / 100 for part, field in _PARTS.items()}
    facts: dict[str, str] = {}
    _add_type(vgpu, numbers, facts)
    _add_guest(vgpu, numbers, facts)
    return Reading("vgpu", _text(name).lower(), *arranged(numbers), gpu=gpu, vm=vm, facts=facts)


def _add_type(vgpu: int, numbers: Numbers, facts: dict[str, str]) -> None:
    vgpu_type = answer_of(lambda: pynvml.nvmlVgpuInstanceGetType(vgpu))
    if vgpu_type is None:
        return
    name = answer_of(lambda: str(pynvml.nvmlVgpuTypeGetName(vgpu_type)))
    total = answer_of(lambda: int(pynvml.nvmlVgpuTypeGetFramebufferSize(vgpu_type)))
    facts.update({"vgpu_type": name} if name else {})
    numbers.update({("vgpu_memory_total_bytes", ""): float(total)} if total else {})


def _add_guest(vgpu: int, numbers: Numbers, facts: dict[str, str]) -> None:
    used = answer_of(lambda: _framebuffer_used(vgpu))
    rate = answer_of(lambda: int(pynvml.nvmlVgpuInstanceGetFrameRateLimit(vgpu)))
    encoding = answer_of(lambda: int(pynvml.nvmlVgpuInstanceGetEncoderStats(vgpu)[0]))
    version = answer_of(lambda: _text(pynvml.nvmlVgpuInstanceGetVmDriverVersion(vgpu)))
    licence = answer_of(lambda: pynvml.nvmlVgpuInstanceGetLicenseInfo_v2(vgpu))
    answers = {"memory_used_bytes": used, "frame_rate_limit": rate, "encoder_sessions": encoding}
    numbers.update({(f"vgpu_{name}", ""): float(answer) for name, answer in answers.items() if answer is not None})
    if licence is not None:
        numbers["vgpu_licensed", ""] = float(bool(licence.isLicensed))
        until = moment(licence.licenseExpiry) if licence.isLicensed else None
        numbers.update({("vgpu_license_expiry_timestamp_seconds", ""): float(until)} if until else {})
    if version is not None and version not in _UNKNOWN_VERSIONS:
        facts["guest_driver_version"] = version


def _framebuffer_used(vgpu: int) -> int:
    """pynvml gives the driver 32 bits to write 64 into, so that it is called without it."""
    used = ctypes.c_ulonglong()
    ask = getattr(pynvml.nvmlLib, "nvmlVgpuInstanceGetFbUsage", None)
    result = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND if ask is None else ask(vgpu, ctypes.byref(used))
    if result != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(result)
    return used.value


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
