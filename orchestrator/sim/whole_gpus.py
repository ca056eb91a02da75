# SPDX-License-Identifier: Apache-2.0
"""Taking whole GPUs from their driver and giving them back, and their partitions of a fabric, as the agent does."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

from orchestrator.core.actions.fabric import ActivateFabricPartition, DeactivateFabricPartition
from orchestrator.core.actions.host_actions import ActionResult, BindVfio, HostAction, RestoreDriver
from orchestrator.core.errors import Conflict, Fatal, Retryable
from orchestrator.core.gpu.fabric import FabricSnapshot, ObservedPartition
from orchestrator.sim.kernel import VFIO, Fabric, SimulatedGpu
from orchestrator.sim.machine import ABSENT, DONE, SO_ALREADY, SimulatedMachine, claim, gpu_there, may_die, release
from orchestrator.sim.vgpu_actions import check_managed, check_unused, write


def take(machine: SimulatedMachine, action: BindVfio) -> ActionResult:
    check_managed(machine, action.gpu)
    key, gpu = f"gpu:{action.gpu}", gpu_there(machine, action.gpu)
    owner = machine.owner(key)
    if owner not in {None, action.vm}:
        raise Conflict("vgpu.foreign", "the GPU is another VM's")
    if owner is None and gpu.driver == VFIO:
        raise Conflict("gpu.foreign", f"vfio-pci has GPU {action.gpu}, and we did not give it there")
    if gpu.driver == VFIO:
        return SO_ALREADY
    used = list(machine.kernel.types_on(gpu))
    if used:
        raise Conflict("gpu.in_use", f"GPU {action.gpu} is in use: {', '.join(used)}")
    if owner is None:
        machine.ledger.passed[action.gpu] = (action.model, gpu.functions)
        claim(machine, key, action.vm, until_reboot=True)
    machine.kernel.switch_functions(gpu, on=False)
    may_die(machine)
    write("bind", lambda: machine.kernel.bind(gpu, VFIO))
    may_die(machine)
    return DONE


def give_back(machine: SimulatedMachine, action: RestoreDriver) -> ActionResult:
    key, gpu = f"gpu:{action.gpu}", gpu_there(machine, action.gpu)
    if machine.owner(key) != action.vm:
        return ABSENT
    if gpu.driver == VFIO:
        check_unused(machine, action.gpu)
        reset(machine, gpu)
        write("bind", lambda: machine.kernel.bind(gpu, "nvidia"))
        may_die(machine)
    if machine.ledger.passed[action.gpu][1]:
        machine.kernel.switch_functions(gpu, on=True)
    release(machine, key, action.vm)
    machine.ledger.passed.pop(action.gpu, None)
    return ActionResult(changed=True, cleaned="flr")


def reset(machine: SimulatedMachine, gpu: SimulatedGpu) -> None:
    """:raises Fatal: ``gpu.reset_failed``"""
    try:
        machine.kernel.reset(gpu)
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "")
        raise Fatal("gpu.reset_failed", f"GPU {gpu.address} did not come back from its reset", details=name) from error
    if gpu is machine.kernel.gpus[0]:
        machine.signals = ()


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
    BindVfio: take,
    RestoreDriver: give_back,
    ActivateFabricPartition: activate,
    DeactivateFabricPartition: deactivate,
}
