# SPDX-License-Identifier: Apache-2.0
"""Whole GPUs and fabric partitions of a machine that lives in memory."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.core.actions.fabric import ActivateFabricPartition, DeactivateFabricPartition
from orchestrator.core.actions.host_actions import BindVfio, HostAction, RestoreDriver
from orchestrator.core.errors import Conflict, Fatal, Retryable
from tests.fakes.fake_machine import FakeMachine, gpu_of, on_gpu


def take(machine: FakeMachine, action: BindVfio) -> None:
    gpu = gpu_of(machine, action.gpu, to_make=True)
    if gpu.passed_to is not None:
        if gpu.passed_to[:2] != (action.vm, action.model):
            raise Conflict("vgpu.foreign", "that GPU is another VM's")
        return
    if on_gpu(machine, gpu):
        raise Conflict("gpu.in_use", "vGPUs are on it")
    gpu.passed_to, gpu.enabled = (action.vm, action.model, gpu.enabled), False


def give_back(machine: FakeMachine, action: RestoreDriver) -> None:
    gpu = gpu_of(machine, action.gpu)
    if gpu.passed_to is None or gpu.passed_to[0] != action.vm:
        return
    if machine.domains.get(action.vm, ("", False))[1]:
        raise Conflict("vgpu.in_use", "the VM still runs")
    own = (one for one, owner in machine.active_partitions.items() if owner == action.vm)
    joined = {module for one in own for module in machine.partitions[one]}
    assert gpu.module_id not in joined, "its driver gets a GPU that is in an active partition"
    gpu.enabled, gpu.passed_to, gpu.signals = gpu.passed_to[2], None, ()  # it is reset


def activate(machine: FakeMachine, action: ActivateFabricPartition) -> None:
    for address, module in zip(action.gpus, action.modules, strict=True):
        gpu = gpu_of(machine, address)
        if gpu.passed_to is None or gpu.passed_to[0] != action.vm or gpu.module_id != module:
            raise Conflict("fabric.members_differ", "the VM's GPUs are not the partition")
    if set(machine.partitions[action.partition]) != set(action.modules):
        raise Fatal("fabric.partition_differs", "there is no such partition")
    if machine.fabric_problem is not None:
        raise Retryable("fabric.down", machine.fabric_problem)
    if action.partition in machine.active_partitions:
        if machine.active_partitions[action.partition] != action.vm:
            raise Conflict("fabric.foreign", "somebody else activated it")
        return
    taken = {module for one in machine.active_partitions for module in machine.partitions[one]}
    if not taken.isdisjoint(action.modules):
        raise Conflict("fabric.in_use", "it overlaps one that is active")
    machine.active_partitions[action.partition] = action.vm


def deactivate(machine: FakeMachine, action: DeactivateFabricPartition) -> None:
    if machine.active_partitions.get(action.partition) != action.vm:
        return
    if machine.domains.get(action.vm, ("", False))[1]:
        raise Conflict("vgpu.in_use", "the VM still runs")
    del machine.active_partitions[action.partition]


WHOLE_GPUS: dict[type[HostAction], Callable[..., None]] = {
    BindVfio: take,
    RestoreDriver: give_back,
    ActivateFabricPartition: activate,
    DeactivateFabricPartition: deactivate,
}
