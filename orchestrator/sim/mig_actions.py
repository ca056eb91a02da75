# SPDX-License-Identifier: Apache-2.0
"""MIG modes, GPU instances and vGPUs in them, as the agent makes them through NVML."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from typing import Any

from orchestrator.core.actions.host_actions import (
    ActionResult,
    CreateGpuInstance,
    DestroyGpuInstance,
    HostAction,
    MakeVgpu,
    SetMigMode,
    VgpuPosition,
)
from orchestrator.core.errors import Conflict, Fatal, Retryable, VgpuctlError
from orchestrator.core.hosts.mig_layout import KEEPER
from orchestrator.sim import vgpu_actions
from orchestrator.sim.kernel import SimulatedGpu
from orchestrator.sim.machine import ABSENT, DONE, SO_ALREADY, SimulatedMachine, may_die
from orchestrator.sim.vgpu_actions import check_managed, check_no_vgpus, drop, hold, holders, owner_of, take_back

_MEANINGS: dict[int, tuple[type[VgpuctlError], str]] = {
    errno.EOPNOTSUPP: (Fatal, "gpu.no_mig"),
    errno.EBUSY: (Conflict, "gpu.in_use"),
    errno.EINVAL: (Fatal, "gpu.instance_refused"),
    errno.ENOSPC: (Fatal, "gpu.instance_refused"),
    errno.EAGAIN: (Retryable, "gpu.mig_busy"),
}
"""What the agent makes of NVML's answer that stands for the errno."""


def set_mode(machine: SimulatedMachine, action: SetMigMode) -> ActionResult:
    check_managed(machine, action.gpu)
    gpu = _gpu(machine, action.gpu)
    if not gpu.kind.profiles:
        raise Fatal("gpu.no_mig", f"GPU {action.gpu} has no MIG")
    machine.ledger.mig_before.setdefault(action.gpu, gpu.mig)
    if gpu.mig == action.on:
        return SO_ALREADY
    check_no_vgpus(machine, action.gpu)
    functions = bool(gpu.functions)
    if functions:
        machine.kernel.switch_functions(gpu, on=False)
    try:
        _ask(lambda: machine.kernel.set_mig(gpu, on=action.on))
    finally:
        if functions:
            machine.kernel.switch_functions(gpu, on=True)
    may_die(machine)
    return DONE


def create(machine: SimulatedMachine, action: CreateGpuInstance) -> ActionResult:
    check_managed(machine, action.gpu)
    gpu, held = _gpu(machine, action.gpu), holders(machine, action.gpu, action.start)
    if not gpu.mig:
        raise Fatal("gpu.mig_off", f"GPU {action.gpu} is not in MIG mode")
    existing = _at(gpu, action.start)
    if existing is not None:
        shared = held and KEEPER not in held and gpu.kind.shares(gpu.instances[existing][0])
        if action.vm not in held and not shared:
            raise Conflict("gpu.instance_foreign", "the GPU instance there is not this VM's")
        if gpu.instances[existing][0] != action.profile:
            raise Conflict("gpu.instance_differs", "the GPU instance there has another profile")
        hold(machine, action.gpu, action.start, action.vm)
        return SO_ALREADY
    hold(machine, action.gpu, action.start, action.vm)
    try:
        _ask(lambda: machine.kernel.create_instance(gpu, action.profile, action.start))
    except VgpuctlError:
        drop(machine, action.gpu, action.start, action.vm)
        raise
    may_die(machine)
    return DONE


def destroy(machine: SimulatedMachine, action: DestroyGpuInstance) -> ActionResult:
    gpu, held = machine.kernel.gpu_of(action.gpu), holders(machine, action.gpu, action.start)
    existing = None if gpu is None else _at(gpu, action.start)
    if existing is None:
        drop(machine, action.gpu, action.start, action.vm)
    if gpu is None or existing is None or action.vm not in held:
        return ABSENT
    users = _users(machine, gpu, existing)
    if (users or len(held) > 1) and gpu.kind.shares(gpu.instances[existing][0]):
        if action.vm in {owner_of(machine, user) for user in users}:
            return ABSENT
        drop(machine, action.gpu, action.start, action.vm)
        return ABSENT
    if users:
        raise Conflict("gpu.instance_in_use", "a vGPU still lies in the GPU instance")
    _ask(lambda: machine.kernel.destroy_instance(gpu, existing))
    drop(machine, action.gpu, action.start, action.vm)
    return ActionResult(changed=True, cleaned="instance_destroyed")


def make(machine: SimulatedMachine, action: MakeVgpu) -> ActionResult:
    match action.at:
        case VgpuPosition(within="instance", start=start):
            return _make_inside(machine, action, start)
        case VgpuPosition(within="gpu", start=start):
            return vgpu_actions.make_at(machine, action, start)
    return vgpu_actions.make(machine, action)


def _make_inside(machine: SimulatedMachine, action: MakeVgpu, start: int) -> ActionResult:
    """While the VM's instance is the only one of ours with room, as the driver chooses."""
    result = vgpu_actions.make(machine, action)
    gpu = _gpu(machine, action.parent)
    if _lies_right(machine, gpu, action.parent, start):
        return result
    made = machine.kernel.vgpu_on(action.parent) or ""
    spare = [number for number in _spare(machine, gpu, start) if not _users(machine, gpu, number, but=made)]
    taken = [gpu.instances[number] for number in spare]
    take_back(machine, action)
    for number in spare:
        _ask(partial(machine.kernel.destroy_instance, gpu, number))
    fillers: list[MakeVgpu] = []
    try:
        _fill(machine, action, start, fillers)
        vgpu_actions.make(machine, action)
    finally:
        for filler in fillers:
            take_back(machine, filler)
        for profile, begins in taken:
            _ask(partial(machine.kernel.create_instance, gpu, profile, begins))
    if not _lies_right(machine, gpu, action.parent, start):
        take_back(machine, action)
        raise Conflict("gpu.instance_chosen", "the driver puts the vGPU into a GPU instance that is not the VM's")
    return DONE


def _lies_right(machine: SimulatedMachine, gpu: SimulatedGpu, function: str, start: int) -> bool:
    made = machine.kernel.vgpu_on(function)
    return made is not None and machine.kernel.inside.get(made) == _at(gpu, start)


def _fill(machine: SimulatedMachine, action: MakeVgpu, start: int, fillers: list[MakeVgpu]) -> None:
    """vGPUs on free functions in the instances that the driver would choose before the VM's."""
    gpu = _gpu(machine, action.parent)
    for function in gpu.parents():
        chosen = machine.kernel.chosen_instance(gpu, action.type_name)
        if chosen is None or gpu.instances[chosen][1] == start:
            return
        if function != action.parent and machine.kernel.vgpu_on(function) is None:
            fillers.append(action.beside(function))
            vgpu_actions.make(machine, fillers[-1])


def _spare(machine: SimulatedMachine, gpu: SimulatedGpu, start: int) -> list[int]:
    profile = next((name for name, begins in gpu.instances.values() if begins == start), None)
    return [
        number
        for number, (name, begins) in gpu.instances.items()
        if name == profile and begins != start and holders(machine, gpu.address, begins)
    ]


def _users(machine: SimulatedMachine, gpu: SimulatedGpu, number: int, but: str = "") -> list[str]:
    kernel = machine.kernel
    names = (name for name, inside in kernel.inside.items() if inside == number and name != but)
    return [name for name in names if gpu.has(kernel.function_of(name))]


def _at(gpu: SimulatedGpu, start: int) -> int | None:
    return next((number for number, (_, begins) in gpu.instances.items() if begins == start), None)


def _gpu(machine: SimulatedMachine, address: str) -> SimulatedGpu:
    """``address``: its own or that of one of its functions. :raises Fatal: ``gpu.gone``"""
    gpu = machine.kernel.gpu_of(address)
    if gpu is None:
        raise Fatal("gpu.gone", f"there is no GPU {address}")
    return gpu


def _ask(change: Callable[[], None]) -> None:
    """:raises VgpuctlError: what the agent would make of the driver's answer"""
    try:
        change()
    except OSError as error:
        family, code = _MEANINGS.get(error.errno or 0, (Fatal, "gpu.mig_refused"))
        raise family(code, f"the driver refused it: {error.strerror}") from error


HANDLERS: dict[type[HostAction], Callable[[SimulatedMachine, Any], ActionResult]] = {
    SetMigMode: set_mode,
    CreateGpuInstance: create,
    DestroyGpuInstance: destroy,
    MakeVgpu: make,
}
