# SPDX-License-Identifier: Apache-2.0
"""vGPUs of several sizes, and limits of power, on the machine in memory."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.core.actions.host_actions import HostAction, MakeVgpu
from orchestrator.core.actions.vgpu_settings import RestoreMixedSizes, SetMixedSizes, SetPowerLimit
from orchestrator.core.errors import Conflict, Fatal
from tests.fakes.fake_machine import FakeMachine, gpu_of, on_gpu


def set_mixed_sizes(machine: FakeMachine, action: SetMixedSizes) -> None:
    gpu = gpu_of(machine, action.gpu, to_make=True)
    if not gpu.functions or gpu.mig or gpu.passed_to is not None:
        raise Fatal("gpu.no_mixed_sizes", "the driver mixes none there")
    if not gpu.mixes and on_gpu(machine, gpu):
        raise Conflict("gpu.in_use", "a vGPU is on it")
    gpu.mixes = True
    gpu.mixed_users = tuple(dict.fromkeys((*gpu.mixed_users, action.vm)))


def restore_mixed_sizes(machine: FakeMachine, action: RestoreMixedSizes) -> None:
    gpu = gpu_of(machine, action.gpu)
    gpu.mixed_users = tuple(vm for vm in gpu.mixed_users if vm != action.vm)
    if not gpu.mixed_users and not on_gpu(machine, gpu):
        gpu.mixes = False


def put(machine: FakeMachine, action: MakeVgpu, placement_id: int) -> None:
    """The vGPU that was made where it shall lie."""
    places = gpu_of(machine, action.parent).places
    name = action.uuid or action.parent
    if placement_id in {start for other, start in places.items() if other != name}:
        raise Conflict("vgpu.placement_refused", "another one lies there")
    places[name] = placement_id


def set_power_limit(machine: FakeMachine, action: SetPowerLimit) -> None:
    gpu = gpu_of(machine, action.gpu, to_make=True)
    if gpu.driver != "nvidia":
        raise Fatal("gpu.no_power_limit", "its driver does not have it")
    gpu.power_limit = action.watts


MODES: dict[type[HostAction], Callable[..., None]] = {
    SetMixedSizes: set_mixed_sizes,
    RestoreMixedSizes: restore_mixed_sizes,
    SetPowerLimit: set_power_limit,
}
