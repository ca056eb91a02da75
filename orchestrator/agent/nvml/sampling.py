# SPDX-License-Identifier: Apache-2.0
"""One reading of all GPUs, vGPUs and GPU instances through NVML.

Each GPU is read behind a gate of its own: one that hangs costs itself, and one thread. Where the driver makes all wait
for it, all are silent. Nothing is read while the agent changes something, and NVML is closed after each reading.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import pynvml

from orchestrator.agent.nvml.asking import answer_of
from orchestrator.agent.nvml.gpu_instances import device_at
from orchestrator.agent.nvml.gpu_readings import GpuConstants, Numbers, constants, numbers
from orchestrator.agent.nvml.reading import Nvml, opened
from orchestrator.agent.nvml.vgpu_readings import OpenVgpus, VgpuReader
from orchestrator.agent.timing import CallHangs, Gate, TooManyHungCalls
from orchestrator.core.readings.frame import Reading, arranged


@dataclass(frozen=True)
class InstanceMemory:
    """``start``: memory slot that the instance begins at, which the ledger knows it by; bytes."""

    id: int
    start: int | None
    used: float
    total: float


def instance_memory(device: Any) -> tuple[InstanceMemory, ...]:
    """Of all that have a compute instance; none outside MIG mode."""
    count = answer_of(lambda: int(pynvml.nvmlDeviceGetMaxMigDeviceCount(device))) or 0
    handles = (answer_of(partial(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, device, index)) for index in range(count))
    instances: dict[int, InstanceMemory] = {}
    for handle in handles:
        number = None if handle is None else answer_of(partial(pynvml.nvmlDeviceGetGpuInstanceId, handle))
        memory = None if number is None else answer_of(partial(pynvml.nvmlDeviceGetMemoryInfo, handle))
        if number is not None and memory is not None:
            start = answer_of(partial(_start, device, int(number)))
            instances[int(number)] = InstanceMemory(int(number), start, float(memory.used), float(memory.total))
    return tuple(instances.values())


def _start(device: Any, number: int) -> int:
    handle = pynvml.nvmlDeviceGetGpuInstanceById(device, number)
    return int(pynvml.nvmlGpuInstanceGetInfo(handle).placement.start)


APART_S: Final = 0.1
"""At least, between two samples (nvml.h, nvmlGpmSampleGet)."""
_METRICS: Final[Mapping[int, str]] = {
    pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL: "engine_active_ratio",
    pynvml.NVML_GPM_METRIC_SM_UTIL: "sm_active_ratio",
    pynvml.NVML_GPM_METRIC_SM_OCCUPANCY: "sm_occupancy_ratio",
    pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: "tensor_active_ratio",
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: "dram_active_ratio",
}


class GpmProbe:
    """Of one subject: ``take`` fills a sample of it now."""

    def __init__(self, take: Callable[[Any], object]) -> None:
        """:raises pynvml.NVMLError: it has none"""
        self._take = take
        self._samples = [pynvml.nvmlGpmSampleAlloc()]
        try:
            take(self._samples[0])
        except pynvml.NVMLError:
            self._free()
            raise

    def finish(self) -> dict[str, float]:
        """Ratios by the end of their quantity's name, since the beginning; what the driver does not tell is not in it.

        :raises pynvml.NVMLError: it has gone"""
        try:
            self._samples.append(pynvml.nvmlGpmSampleAlloc())
            self._take(self._samples[1])
            return _between(*self._samples)
        finally:
            self._free()

    def _free(self) -> None:
        for sample in self._samples:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlGpmSampleFree(sample)
        self._samples = []


def _between(first: Any, second: Any) -> dict[str, float]:
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.version, request.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(_METRICS)
    request.sample1, request.sample2 = first, second
    for number, metric in enumerate(_METRICS):
        request.metrics[number].metricId = metric
    pynvml.nvmlGpmMetricsGet(request)
    answers = [request.metrics[number] for number in range(len(_METRICS))]
    return {_METRICS[answer.metricId]: answer.value / 100 for answer in answers if answer.nvmlReturn == 0}


HANGS: Final = "the driver does not answer"
_GPU_LIMIT_S, _ALL_LIMIT_S, _OPEN_LIMIT_S = 2.0, 6.0, 10.0
_WAIT_S: Final = 1.0
"""For whoever else has NVML; then this reading is left out."""

Holder = Callable[[str, int | None], str]
"""(PCI address, memory slot) → VM that has the GPU instance there; empty: none, or several."""


@dataclass(kw_only=True)
class _Gpu:
    """What is remembered of one between readings."""

    gate: Gate
    vgpus: VgpuReader = field(default_factory=VgpuReader)
    constants: GpuConstants | None = None


@dataclass(kw_only=True)
class _Begun:
    """A GPU that was read, but for what a second sample tells."""

    known: GpuConstants
    numbers: Numbers
    vgpus: OpenVgpus | None
    instances: tuple[InstanceMemory, ...]
    whole: GpmProbe | None
    probes: Mapping[int, GpmProbe]


class NvmlSampler:
    """Used by one thread."""

    def __init__(self, nvml: Nvml, holder: Holder) -> None:
        self._nvml = nvml
        self._holder = holder
        self._gate = Gate("NVML", limit_s=_OPEN_LIMIT_S, most_hanging=1)
        self._gpus: dict[str, _Gpu] = {}

    def forget(self) -> None:
        """Another driver may be loaded: what was asked of it once is asked again."""
        self._gpus = {address: _Gpu(gate=gpu.gate) for address, gpu in self._gpus.items()}

    def read(self, gpus: Mapping[str, str]) -> tuple[Reading, ...] | None:
        """None: the agent uses NVML just now. ``gpus``: those that NVIDIA's driver has, PCI address → UUID, which is
        empty while nobody knows it."""
        with self._nvml.alone(within_s=_WAIT_S) as alone:
            if not alone:
                return None
            try:
                self._gate.call(pynvml.nvmlInit)
            except (pynvml.NVMLError, CallHangs, TooManyHungCalls):
                return tuple(_silent(address, uuid, HANGS) for address, uuid in gpus.items() if uuid)
            try:
                return tuple(self._all(gpus))
            finally:
                self._close()

    def _close(self) -> None:
        try:
            self._gate.call(pynvml.nvmlShutdown)
        except (pynvml.NVMLError, CallHangs, TooManyHungCalls):
            return  # its thread closes it when it comes back

    def _all(self, gpus: Mapping[str, str]) -> Iterator[Reading]:
        began = time.monotonic()
        begun = {address: self._call(began, address, partial(self._begin, address)) for address in gpus}
        if any(isinstance(gpu, _Begun) and (gpu.whole or gpu.probes) for gpu in begun.values()):
            time.sleep(APART_S)
        began = time.monotonic()  # those that were read must not pay for those that hang
        for address, first in begun.items():
            finish = partial(self._finish, address, first)
            read = first if isinstance(first, str) else self._call(began, address, finish)
            if not isinstance(read, str):
                yield from read
            elif uuid := self._uuid(address) or gpus[address]:
                yield _silent(address, uuid, read)

    def _uuid(self, address: str) -> str:
        known = self._gpus[address].constants
        return "" if known is None else known.uuid

    def _call(self, began: float, address: str, function: Callable[[], Any]) -> Any:
        """What it answers, or why the GPU is silent."""
        gpu = self._gpus.setdefault(address, _Gpu(gate=Gate(f"GPU {address}", limit_s=_GPU_LIMIT_S, most_hanging=1)))
        left = _ALL_LIMIT_S - (time.monotonic() - began)
        if left <= 0:
            return HANGS
        try:
            return gpu.gate.call(function, limit_s=min(_GPU_LIMIT_S, left))
        except (CallHangs, TooManyHungCalls):
            return HANGS
        except pynvml.NVMLError as error:
            return f"the driver says: {error}"

    def _begin(self, address: str) -> _Begun:
        """:raises pynvml.NVMLError: the GPU is lost, or no longer the driver's"""
        gpu = self._gpus[address]
        with opened():  # for itself: it may come back when the reading is long over
            device = device_at(address)
            known = gpu.constants = gpu.constants or constants(device)
            instances = instance_memory(device)
            whole = answer_of(lambda: GpmProbe(partial(pynvml.nvmlGpmSampleGet, device))) if known.has_gpm else None
            probes = {
                instance.id: answer_of(partial(GpmProbe, partial(pynvml.nvmlGpmMigSampleGet, device, instance.id)))
                for instance in (instances if known.has_gpm else ())
            }
            return _Begun(
                known=known,
                numbers=numbers(device, known),
                vgpus=gpu.vgpus.read(device, known.uuid),
                instances=instances,
                whole=whole,
                probes={number: probe for number, probe in probes.items() if probe is not None},
            )

    def _finish(self, address: str, gpu: _Begun) -> tuple[Reading, ...]:
        uuid = gpu.known.uuid
        with opened():
            if gpu.whole is not None:
                ratios = answer_of(gpu.whole.finish) or {}
                gpu.numbers.update({(f"gpu_{name}", ""): ratio for name, ratio in ratios.items()})
            if gpu.vgpus is not None:
                gpu.numbers["gpu_vgpus", ""] = float(gpu.vgpus.number)
            facts = {**gpu.known.facts, "pci_address": address}
            instances = tuple(self._instance(address, gpu, instance) for instance in gpu.instances)
        return (
            Reading("gpu", uuid, *arranged(gpu.numbers), facts=facts),
            *instances,
            *(gpu.vgpus.readings if gpu.vgpus else ()),
        )

    def _instance(self, address: str, gpu: _Begun, memory: InstanceMemory) -> Reading:
        probe = gpu.probes.get(memory.id)
        ratios = (answer_of(probe.finish) if probe else None) or {}
        numbers: Numbers = {
            ("gpu_instance_memory_used_bytes", ""): memory.used,
            ("gpu_instance_memory_total_bytes", ""): memory.total,
            **{(f"gpu_instance_{name}", ""): ratio for name, ratio in ratios.items() if name in _OF_INSTANCES},
        }
        uuid = gpu.known.uuid
        vm = self._holder(address, memory.start)
        return Reading("gpu_instance", f"{uuid}/{memory.id}", *arranged(numbers), gpu=uuid, vm=vm)


_OF_INSTANCES: Final = ("engine_active_ratio", "sm_active_ratio", "tensor_active_ratio", "dram_active_ratio")


def _silent(address: str, uuid: str, why: str) -> Reading:
    return Reading("gpu", uuid, *arranged({}), silent=why, facts={"pci_address": address})
