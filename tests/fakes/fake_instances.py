# SPDX-License-Identifier: Apache-2.0
"""MIG on the small fake host: modes, GPU instances, vGPUs in them."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.core.actions.host_actions import (
    CreateGpuInstance,
    DestroyGpuInstance,
    HostAction,
    MakeVgpu,
    SetMigMode,
)
from orchestrator.core.errors import Conflict, Fatal
from tests.fakes.fake_machine import SHARED, SLOTS, FakeMachine, gpu_of, on_gpu


def set_mig_mode(machine: FakeMachine, action: SetMigMode) -> None:
    gpu = gpu_of(machine, action.gpu, to_make=True)
    if gpu.mig is None:
        raise Fatal("gpu.no_mig", "that GPU has no MIG")
    if gpu.mig == action.on:
        return
    if gpu.instances or on_gpu(machine, gpu):
        raise Conflict("gpu.in_use", "something is on the GPU")
    gpu.mig_before = gpu.mig if gpu.mig_before is None else gpu.mig_before
    gpu.mig = action.on


def create_instance(machine: FakeMachine, action: CreateGpuInstance) -> None:
    gpu = gpu_of(machine, action.gpu, to_make=True)
    there = gpu.instances.get(action.start)
    if not gpu.mig:
        raise Fatal("gpu.mig_off", "the GPU is not in MIG mode")
    if there is not None:
        if there[0] != action.profile or (action.vm not in there[1] and action.profile not in SHARED):
            raise Conflict("gpu.instance_foreign", "that GPU instance is somebody else's")
        gpu.instances[action.start] = (action.profile, tuple(dict.fromkeys((*there[1], action.vm))))
        return
    taken = {start + slot for start, (profile, _) in gpu.instances.items() for slot in range(SLOTS[profile])}
    if not taken.isdisjoint(range(action.start, action.start + SLOTS[action.profile])):
        raise Fatal("gpu.instance_refused", "others lie there")
    gpu.instances[action.start] = (action.profile, (action.vm,))


def destroy_instance(machine: FakeMachine, action: DestroyGpuInstance) -> None:
    gpu = gpu_of(machine, action.gpu)
    profile, held = gpu.instances.get(action.start, ("", ()))
    left = tuple(vm for vm in held if vm != action.vm)
    if left:
        gpu.instances[action.start] = (profile, left)
    elif held and not (profile in SHARED and action.start in gpu.inside.values()):
        if action.start in gpu.inside.values():
            raise Conflict("gpu.instance_in_use", "a vGPU still lies in it")
        del gpu.instances[action.start]


def make_inside(
    machine: FakeMachine, action: MakeVgpu, start: int, make: Callable[[FakeMachine, MakeVgpu], None]
) -> None:
    """In an instance: here the driver puts the vGPU where it shall be."""
    gpu = gpu_of(machine, action.parent)
    if start not in gpu.instances:
        raise Fatal("vgpu.no_room", "there is no such GPU instance")
    make(machine, action)
    gpu.inside[action.parent] = start


INSTANCES: dict[type[HostAction], Callable[..., None]] = {
    SetMigMode: set_mig_mode,
    CreateGpuInstance: create_instance,
    DestroyGpuInstance: destroy_instance,
}
