# SPDX-License-Identifier: Apache-2.0
"""Host actions that set how vGPUs and GPUs behave: what was asked for beside the vGPU itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.core.actions.host_actions import HostAction, MakesDevice, RemovesDevice
from orchestrator.core.gpu.device import Device
from orchestrator.core.gpu.vgpu_parameters import Scheduler, SchedulerPolicy, VgpuParameters, words


@dataclass(frozen=True, kw_only=True)
class SetGpuSetting(MakesDevice, ABC):
    """Have a GPU set so for as long as VMs want it; several VMs may want the same."""

    gpu: str

    @property
    def function(self) -> str:
        return self.gpu

    @property
    @abstractmethod
    def words(self) -> str:
        """What is asked for, for people."""


@dataclass(frozen=True, kw_only=True)
class RestoreGpuSetting(RemovesDevice):
    """The VM wants it no more. With the last that did, the GPU is as before; where somebody else's vGPU is on it by
    then, when the GPU is given back."""

    gpu: str


@dataclass(frozen=True, kw_only=True)
class SetVgpuScheduler(SetGpuSetting):
    """Have a GPU divide its time so, for as long as VMs want it. What it was before is written down first. Refused
    while there is a vGPU on the GPU, whoever made it, unless it is so already."""

    since = 6
    policy: SchedulerPolicy
    time_slice_ms: int | None

    @property
    def wanted(self) -> Scheduler:
        return Scheduler(policy=self.policy, time_slice_ms=self.time_slice_ms)

    @property
    def words(self) -> str:
        return words(self.wanted)

    def inverse(self) -> HostAction:
        return RestoreVgpuScheduler(vm=self.vm, gpu=self.gpu)


@dataclass(frozen=True, kw_only=True)
class RestoreVgpuScheduler(RestoreGpuSetting):
    since = 6


@dataclass(frozen=True, kw_only=True)
class SetMixedSizes(SetGpuSetting):
    """Have a GPU take vGPUs of several sizes (heterogeneous mode), for as long as VMs want it. What it was before is
    written down first. Refused while there is a vGPU on the GPU, whoever made it, unless it is so already."""

    since = 7

    @property
    def words(self) -> str:
        return "several sizes"

    def inverse(self) -> HostAction:
        return RestoreMixedSizes(vm=self.vm, gpu=self.gpu)


@dataclass(frozen=True, kw_only=True)
class RestoreMixedSizes(RestoreGpuSetting):
    since = 7


def settings_for(vm: str, device: Device) -> Iterator[SetGpuSetting]:
    """How a device needs its GPU to be set before it is made."""
    if device.placement_id is not None:
        yield SetMixedSizes(vm=vm, gpu=device.gpu)
    wanted = device.asks_of_gpu
    if wanted is not None:
        yield SetVgpuScheduler(vm=vm, gpu=device.gpu, policy=wanted.policy, time_slice_ms=wanted.time_slice_ms)


@dataclass(frozen=True, kw_only=True)
class SetPowerLimit(HostAction):
    """Have a GPU take no more power than this, whatever is on it; set again after a boot. It has its own limit again
    when it is given back."""

    since = 11
    no_inverse = "what a GPU shall keep to is worked out anew again and again"
    gpu: str
    watts: int
    """0: its own limit, as its driver begins with it."""


@dataclass(frozen=True, kw_only=True)
class SetVgpuParameters(MakesDevice):
    """Give a vGPU that is there these parameters and no others. Refused while a VM has it open."""

    since = 6
    parent: str
    """PCI function that it is on."""
    name: str
    """As its ``<hostdev>`` calls it."""
    parameters: VgpuParameters

    @property
    def function(self) -> str:
        return self.parent

    @property
    def text(self) -> str:
        """As the driver's file takes it."""
        return vgpu_parameters_text(self.parameters)

    def inverse(self) -> HostAction:
        return ClearVgpuParameters(vm=self.vm, name=self.name)


@dataclass(frozen=True, kw_only=True)
class ClearVgpuParameters(RemovesDevice):
    """One that is gone has none."""

    since = 6
    name: str


def vgpu_parameters_text(parameters: VgpuParameters) -> str:
    """``key=value`` pairs with commas between them; what leaves the driver's default is left out."""
    limiter, console = parameters.frame_rate_limiter, parameters.console
    pairs = {
        "enable_uvm": 1 if parameters.uvm else None,
        "frame_rate_limiter": None if limiter is None else int(limiter),
        "enable_debugging": 1 if parameters.debugging else None,
        "enable_profiling": 1 if parameters.profiling else None,
        "disable_vnc": None if console is None else int(not console),
    }
    return ",".join(f"{key}={value}" for key, value in pairs.items() if value is not None)
