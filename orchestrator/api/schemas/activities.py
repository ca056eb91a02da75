# SPDX-License-Identifier: Apache-2.0
"""What hosts, GPUs and VMs do now, each in one row that people compare. What was not read is null."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

from orchestrator.api.schemas.base import AnswerBody
from orchestrator.services.readings.believed import BelievedReading
from orchestrator.services.readings.readings import HostReadings, VmReadings


class GpuActivityAnswer(AnswerBody):
    """What a GPU does now."""

    host: str
    """Name of its host."""
    address: str
    """PCI address."""
    model: str
    """What it is called."""
    use: float | None
    """Share of the time that it worked, from 0 to 1."""
    memory_used_bytes: float | None
    """Of its framebuffer."""
    memory_total_bytes: float | None
    """Of its framebuffer."""
    temperature_celsius: float | None
    """Of the GPU itself."""
    power_watts: float | None
    """That it takes."""
    silent: str | None
    """Why there are no numbers."""
    age_s: float
    """Seconds since it was received."""

    @classmethod
    def all_of(cls, host: HostReadings) -> tuple[GpuActivityAnswer, ...]:
        """Of no GPU while the host is silent."""
        received = host.received
        return tuple(
            cls(
                host=host.known.host.name,
                address=item.gpu.address,
                model=item.model,
                use=item.reading.get("gpu_utilization_ratio"),
                memory_used_bytes=item.reading.get("gpu_memory_used_bytes"),
                memory_total_bytes=item.reading.get("gpu_memory_total_bytes"),
                temperature_celsius=item.reading.get("gpu_temperature_celsius", "gpu"),
                power_watts=item.reading.get("gpu_power_watts"),
                silent=item.reading.silent or None,
                age_s=received.age_s,
            )
            for item in host.readings
            if received is not None and item.reading.kind == "gpu" and item.gpu is not None
        )


class HostActivityAnswer(AnswerBody):
    """What a host's GPUs do now: means, sums and the hottest of them."""

    host: str
    """Its name."""
    gpus: int | None
    """How many it has; null: it is silent."""
    silent: int | None
    """Of how many there are no numbers; null: it is silent."""
    use: float | None
    """Share of the time that they worked, from 0 to 1: the mean."""
    memory_used_bytes: float | None
    """Of all framebuffers."""
    memory_total_bytes: float | None
    """Of all framebuffers."""
    temperature_celsius: float | None
    """Of the hottest."""
    power_watts: float | None
    """That they take together."""
    age_s: float | None
    """Seconds since it was received; null: nothing was received within 30 s."""

    @classmethod
    def of(cls, host: HostReadings) -> HostActivityAnswer:
        gpus, heard = GpuActivityAnswer.all_of(host), host.received is not None
        return cls(
            host=host.known.host.name,
            gpus=len(gpus) if heard else None,
            silent=sum(gpu.silent is not None for gpu in gpus) if heard else None,
            use=_together(fmean, (gpu.use for gpu in gpus)),
            memory_used_bytes=_together(sum, (gpu.memory_used_bytes for gpu in gpus)),
            memory_total_bytes=_together(sum, (gpu.memory_total_bytes for gpu in gpus)),
            temperature_celsius=_together(max, (gpu.temperature_celsius for gpu in gpus)),
            power_watts=_together(sum, (gpu.power_watts for gpu in gpus)),
            age_s=None if host.received is None else host.received.age_s,
        )


class VmActivityAnswer(AnswerBody):
    """What a VM and its vGPUs do now."""

    name: str
    """tenant/name."""
    cpus: float | None
    """How many CPUs it kept busy in the last seconds."""
    memory_bytes: float | None
    """Of the host's memory."""
    use: float | None
    """Share of the time that its vGPUs worked, from 0 to 1: the mean."""
    memory_used_bytes: float | None
    """Of its vGPUs' framebuffers."""
    memory_total_bytes: float | None
    """Of its vGPUs' framebuffers."""
    licensed: float | None
    """1: all of its vGPUs have a licence; 0: one has none."""
    age_s: float | None
    """Seconds since it was received; null: nothing was received within 30 s."""

    @classmethod
    def of(cls, vm: VmReadings) -> VmActivityAnswer:
        itself = next((item for item in vm.readings if item.reading.kind == "vm"), None)
        vgpus = [item for item in vm.readings if item.reading.kind == "vgpu"]

        def together(how: Callable[[Sequence[float]], float], quantity: str) -> float | None:
            return _together(how, (vgpu.reading.get(quantity) for vgpu in vgpus))

        return cls(
            name=vm.vm.full_name,
            cpus=None if itself is None else _busy_cpus(vm, itself),
            memory_bytes=None if itself is None else itself.reading.get("vm_memory_resident_bytes"),
            use=together(fmean, "vgpu_sm_ratio"),
            memory_used_bytes=together(sum, "vgpu_memory_used_bytes"),
            memory_total_bytes=together(sum, "vgpu_memory_total_bytes"),
            licensed=together(min, "vgpu_licensed"),
            age_s=None if vm.received is None else vm.received.age_s,
        )


def _busy_cpus(vm: VmReadings, itself: BelievedReading) -> float | None:
    if vm.received is None:
        return None
    grown = vm.received.last_moment("vm", itself.reading.id)
    return grown.get(("vm_cpu_seconds_total", ""))


def _together(how: Callable[[Sequence[float]], float], numbers: Iterable[float | None]) -> float | None:
    read = [number for number in numbers if number is not None]
    return how(read) if read else None
