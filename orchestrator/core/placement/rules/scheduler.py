# SPDX-License-Identifier: Apache-2.0
"""A GPU divides its time in one way for all that is on it. The driver changes that only while no vGPU is on the GPU,
and a VM that is stopped may be started any time."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

from orchestrator.core.geometry.geometry import Geometry
from orchestrator.core.gpu.device import Device
from orchestrator.core.gpu.vgpu_parameters import Scheduler, words
from orchestrator.core.hosts.snapshot import GpuSnapshot
from orchestrator.core.placement.rules.rule import Fact, GpuInUse, HeldPart, Need, need_of
from orchestrator.core.placement.rules.wanted import Wanted


@dataclass(frozen=True, slots=True)
class FixedScheduler(Fact):
    """The GPU's driver lets nobody choose how its time is divided."""


@dataclass(frozen=True, slots=True)
class ScheduledBy(Need):
    """How its GPUs divide their time; None: as the driver does by itself."""

    codes = ("gpu.no_scheduler", "gpu.other_scheduler")
    after_shortage = True
    keeps_off = True

    scheduler: Scheduler | None

    @property
    def filters(self) -> bool:
        return self.scheduler is not None

    @property
    def filters_others(self) -> bool:
        return self.scheduler is not None

    @property
    def judges_empty_gpus(self) -> bool:
        return self.scheduler is not None

    def off_gpu(self, gpu: GpuInUse) -> Iterator[str]:
        if self.scheduler is not None and FixedScheduler() in gpu.facts:
            yield "gpu.no_scheduler"
        if any(scheduler_of(item.needs) != self.scheduler for _, item in gpu.held):
            yield "gpu.other_scheduler"

    def in_the_way(self, held: Iterable[HeldPart], geometry: Geometry, cut: str | None) -> Iterator[str]:
        return (item.vm_id for item in held if scheduler_of(item.needs) != self.scheduler)

    def as_neighbour(self, needs: tuple[Need, ...]) -> Hashable:
        return self in needs

    def message(self, code: str) -> str:
        if code == "gpu.no_scheduler":
            return "the GPU's driver lets nobody choose how its time is divided"
        return f"VMs on the GPU have its time divided otherwise, not by {words(self.scheduler)}"


def needs_of(wanted: Wanted) -> Iterator[Need]:
    yield ScheduledBy(wanted.offering.scheduler)


def needs_of_device(device: Device) -> tuple[Need, ...]:
    """As it was made: its offering may be another one by now."""
    return (ScheduledBy(device.scheduler),)


def facts_of(gpu: GpuSnapshot) -> tuple[Fact, ...]:
    return (FixedScheduler(),) if gpu.scheduler is None else ()


def scheduler_of(needs: tuple[Need, ...]) -> Scheduler | None:
    need = need_of(needs, ScheduledBy)
    return None if need is None else need.scheduler
