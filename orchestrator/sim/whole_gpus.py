# SPDX-License-Identifier: Apache-2.0
"""Taking whole GPUs from their driver and giving them back, as the agent does."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

from orchestrator.core.actions.host_actions import ActionResult, BindVfio, HostAction, RestoreDriver
from orchestrator.core.errors import Conflict, Fatal
from orchestrator.sim.kernel import VFIO, SimulatedGpu
from orchestrator.sim.machine import SimulatedMachine
from orchestrator.sim.upkeep import DONE, SO_ALREADY, claim, gpu_there, may_die, release
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
        return SO_ALREADY
    if gpu.driver == VFIO:
        check_unused(machine, action.gpu)
        reset(machine, gpu)
        write("bind", lambda: machine.kernel.bind(gpu, "nvidia"))
        may_die(machine)
    if machine.ledger.passed[action.gpu][1]:
        machine.kernel.switch_functions(gpu, on=True)
    release(machine, key, action.vm)
    machine.ledger.passed.pop(action.gpu, None)
    return DONE


def reset(machine: SimulatedMachine, gpu: SimulatedGpu) -> None:
    """:raises Fatal: ``gpu.reset_failed``"""
    try:
        machine.kernel.reset(gpu)
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "")
        raise Fatal("gpu.reset_failed", f"GPU {gpu.address} did not come back from its reset", details=name) from error


HANDLERS: dict[type[HostAction], Callable[[SimulatedMachine, Any], ActionResult]] = {
    BindVfio: take,
    RestoreDriver: give_back,
}
