# SPDX-License-Identifier: Apache-2.0
"""What of a host's frame is believed: its own GPUs, and the VMs that the database has on it.

A host can name others' VMs; what it says of those is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from orchestrator.core.hosts.host import Host
from orchestrator.core.readings.frame import PASSED_THROUGH, HostFrame, Reading, arranged
from orchestrator.core.vms.vm import Vm
from orchestrator.services.readings.known_gpus import KnownGpu

NOTHING_SENT: Final = "the host sends nothing of it"


@dataclass(frozen=True, kw_only=True)
class StoredHost:
    """A host as the database has it."""

    host: Host
    seen: tuple[KnownGpu, ...]
    """Its GPUs, as they were observed last."""
    vms: Mapping[str, Vm]
    """Those on the host, by id."""

    def gpus(self) -> Mapping[str, KnownGpu]:
        """By UUID and by PCI address."""
        return {name: gpu for gpu in self.seen for name in (gpu.address, gpu.uuid) if name}


@dataclass(frozen=True, kw_only=True)
class BelievedReading:
    """Of one subject."""

    reading: Reading
    """Without numbers: ``silent`` says why."""
    gpu: KnownGpu | None = None
    """That it is, or that it lies on. None: of a VM."""
    vm: Vm | None = None
    """Of ours, that it is, or that has it. None: none, or somebody else's."""

    @property
    def model(self) -> str:
        """Of the GPU; empty: it has none."""
        return "" if self.gpu is None else self.gpu.model


def believed(known: StoredHost, frame: HostFrame) -> tuple[BelievedReading, ...]:
    """GPUs first, each that the host has; then instances, vGPUs and VMs, as they were sent."""
    gpus = known.gpus()
    of_gpus = {
        gpus[reading.id].address: reading for reading in frame.readings if reading.kind == "gpu" and reading.id in gpus
    }
    rest = (reading for reading in frame.readings if reading.kind != "gpu")
    return (*_gpus(known, of_gpus), *_parts(known, gpus, rest))


def of_vm(own: Iterable[BelievedReading], neighbours: Mapping[str, Vm]) -> tuple[BelievedReading, ...]:
    """What a VM's tenant may see of its ``own``: of the VM itself, its vGPUs and GPU instances that no other tenant's
    VM lies in. ``neighbours``: all VMs of its host, by id."""
    return tuple(item for item in own if item.reading.kind in {"vm", "vgpu"} or _alone(item, neighbours))


def _gpus(known: StoredHost, sent: Mapping[str, Reading]) -> Iterator[BelievedReading]:
    for gpu in known.seen:
        reading = sent.get(gpu.address)
        if reading is not None:
            yield BelievedReading(reading=reading, gpu=gpu, vm=known.vms.get(reading.vm))
        elif gpu.address in known.host.managed_gpus:
            whole = next((vm for vm in known.vms.values() if _has_whole(vm, gpu)), None)
            yield BelievedReading(reading=_silent(gpu, whole), gpu=gpu, vm=whole)


def _parts(known: StoredHost, gpus: Mapping[str, KnownGpu], readings: Iterator[Reading]) -> Iterator[BelievedReading]:
    for reading in readings:
        if reading.kind == "vm":
            if reading.id in known.vms:
                yield BelievedReading(reading=reading, vm=known.vms[reading.id])
        elif reading.gpu in gpus:
            yield BelievedReading(reading=reading, gpu=gpus[reading.gpu], vm=known.vms.get(reading.vm))


def _has_whole(vm: Vm, gpu: KnownGpu) -> bool:
    return any(device.is_whole_gpu and device.gpu == gpu.address for device in vm.devices)


def _silent(gpu: KnownGpu, whole: Vm | None) -> Reading:
    why = NOTHING_SENT if whole is None else PASSED_THROUGH
    return Reading("gpu", gpu.uuid or gpu.address, *arranged({}), silent=why)


def _alone(item: BelievedReading, neighbours: Mapping[str, Vm]) -> bool:
    """Whether no VM of another tenant is where it is: an instance that vGPUs share shows what all of them do."""
    if item.gpu is None or item.vm is None or item.reading.kind != "gpu_instance":
        return False
    own = {(device.gpu, device.gi_start) for device in item.vm.devices if device.gpu == item.gpu.address}
    others = (vm for vm in neighbours.values() if vm.spec.tenant != item.vm.spec.tenant)
    return bool(own) and not any((device.gpu, device.gi_start) in own for vm in others for device in vm.devices)
