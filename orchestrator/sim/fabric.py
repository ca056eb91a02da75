# SPDX-License-Identifier: Apache-2.0
"""A fabric manager in memory, and what an agent does with its partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orchestrator.core.actions.fabric import ActivateFabricPartition, DeactivateFabricPartition
from orchestrator.core.actions.host_actions import ActionResult, HostAction
from orchestrator.core.errors import Conflict, Fatal, Retryable
from orchestrator.core.gpu.fabric import FabricSnapshot, ObservedPartition
from orchestrator.sim.kernel import VFIO, Fabric
from orchestrator.sim.machine import SimulatedMachine
from orchestrator.sim.upkeep import DONE, SO_ALREADY, claim, gpu_there, may_die, release
from orchestrator.sim.vgpu_actions import check_managed, check_unused
from orchestrator.sim.whole_gpus import reset


def activate(machine: SimulatedMachine, action: ActivateFabricPartition) -> ActionResult:
    for address, module in zip(action.gpus, action.modules, strict=True):
        check_managed(machine, address)
        gpu = gpu_there(machine, address)
        if machine.owner(f"gpu:{address}") != action.vm or gpu.driver != VFIO or gpu.module_id != module:
            raise Conflict("fabric.members_differ", "the VM's GPUs are not the fabric partition drawn for it")
    fabric, key = _running(machine), partition_key(action.partition)
    if set(fabric.partitions.get(action.partition, ())) != set(action.modules):
        raise Fatal("fabric.partition_differs", f"there is no partition {action.partition} of these GPUs")
    if action.partition in fabric.active:
        if machine.owner(key) != action.vm:
            raise Conflict("fabric.foreign", f"fabric partition {action.partition} is active, and is not this VM's")
        return SO_ALREADY
    claim(machine, key, action.vm, until_reboot=True)
    if not fabric.activate(action.partition):
        release(machine, key, action.vm)
        raise Conflict("fabric.in_use", "a GPU of the partition is in one that is active")
    may_die(machine)
    return DONE


def deactivate(machine: SimulatedMachine, action: DeactivateFabricPartition) -> ActionResult:
    key = partition_key(action.partition)
    if machine.owner(key) != action.vm:
        return SO_ALREADY
    fabric = _running(machine)
    passed = [gpu for gpu in (gpu_there(machine, address) for address in action.gpus) if gpu.driver == VFIO]
    for gpu in passed:
        check_unused(machine, gpu.address)
    for gpu in passed:
        reset(machine, gpu)
    fabric.active.discard(action.partition)
    may_die(machine)
    release(machine, key, action.vm)
    return DONE


def fabric_snapshot(machine: SimulatedMachine) -> FabricSnapshot | None:
    fabric = machine.kernel.fabric
    if fabric is None:
        return None
    if not fabric.up:
        return FabricSnapshot(version=machine.driver_version, problem="the host's fabric manager does not answer")
    partitions = tuple(
        ObservedPartition(
            id=number, modules=modules, active=number in fabric.active, owner=machine.owner(partition_key(number))
        )
        for number, modules in sorted(fabric.partitions.items())
    )
    return FabricSnapshot(version=machine.driver_version, partitions=partitions)


def partition_key(partition: int) -> str:
    return f"partition:{partition}"


def _running(machine: SimulatedMachine) -> Fabric:
    fabric = machine.kernel.fabric
    if fabric is None or not fabric.up:
        raise Retryable("fabric.down", "the host's fabric manager does not answer")
    return fabric


HANDLERS: dict[type[HostAction], Callable[[SimulatedMachine, Any], ActionResult]] = {
    ActivateFabricPartition: activate,
    DeactivateFabricPartition: deactivate,
}
