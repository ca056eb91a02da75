# SPDX-License-Identifier: Apache-2.0
"""How GPUs and vGPUs are set for VMs, as the agent does it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from orchestrator.core.actions.host_actions import ActionResult, HostAction
from orchestrator.core.actions.vgpu_settings import (
    ClearVgpuParameters,
    RestoreVgpuScheduler,
    SetVgpuParameters,
    SetVgpuScheduler,
)
from orchestrator.core.errors import Conflict, Fatal
from orchestrator.core.gpu.scheduler import SchedulerState, is_so
from orchestrator.sim import gpu_setting
from orchestrator.sim.machine import SimulatedMachine
from orchestrator.sim.upkeep import DONE, SO_ALREADY, gpu_there, may_die
from orchestrator.sim.vgpu_actions import check_managed, check_no_vgpus, check_unused, owner_of, write


def set_scheduler(machine: SimulatedMachine, action: SetVgpuScheduler) -> ActionResult:
    check_managed(machine, action.gpu)
    gpu = gpu_there(machine, action.gpu)
    now = machine.kernel.scheduler_of(gpu)
    if now is None:
        raise Fatal("gpu.no_scheduler", f"the driver of GPU {action.gpu} lets nobody choose how its time is divided")
    so_already = is_so(action.wanted, now)
    if not so_already:
        check_no_vgpus(machine, action.gpu)
    ledger = machine.ledger
    if ledger.schedulers.get(action.gpu, (0, "", None))[0] != machine.boot:
        ledger.schedulers[action.gpu] = (machine.boot, now.policy, now.time_slice_us)
    slice_us = None if action.policy == "best_effort" else (action.time_slice_ms or 2) * 1000
    wanted = SchedulerState(policy=action.policy, time_slice_us=slice_us)
    return gpu_setting.want(
        machine, ledger.scheduler_users, action.gpu, action.vm, so_already=so_already,
        change=lambda: machine.kernel.set_scheduler(gpu, wanted),
    )  # fmt: skip


def restore_scheduler(machine: SimulatedMachine, action: RestoreVgpuScheduler) -> ActionResult:
    users = machine.ledger.scheduler_users
    return gpu_setting.want_no_more(machine, users, action.gpu, action.vm, put_scheduler_back)


def put_scheduler_back(machine: SimulatedMachine, address: str) -> bool:
    """Whether the GPU is another one now. Where a vGPU is on it, it is left for later."""
    gpu, schedulers = gpu_there(machine, address), machine.ledger.schedulers
    boot, policy, slice_us = schedulers.get(address, (0, "unknown", None))
    now = machine.kernel.scheduler_of(gpu)
    before = SchedulerState(policy=policy, time_slice_us=slice_us)
    differs = boot == machine.boot and now is not None and now != before
    return gpu_setting.put_back(
        machine, schedulers, address, differs=differs, change=lambda: machine.kernel.set_scheduler(gpu, before)
    )


def set_parameters(machine: SimulatedMachine, action: SetVgpuParameters) -> ActionResult:
    if owner_of(machine, action.name) != action.vm:
        raise Conflict("vgpu.foreign", "the vGPU there is not this VM's")
    return _write_parameters(machine, action.name, action.text)


def clear_parameters(machine: SimulatedMachine, action: ClearVgpuParameters) -> ActionResult:
    if owner_of(machine, action.name) != action.vm or action.name not in machine.kernel.devices():
        return SO_ALREADY
    return _write_parameters(machine, action.name, "")


def _write_parameters(machine: SimulatedMachine, name: str, text: str) -> ActionResult:
    there = machine.kernel.parameters.get(name, "")
    if there == text:
        return SO_ALREADY
    check_unused(machine, name)
    for value in (" ", text) if there and text else (text or " ",):
        write("vgpu_params", partial(machine.kernel.write_parameters, name, value))
    may_die(machine)
    return DONE


HANDLERS: dict[type[HostAction], Callable[[SimulatedMachine, Any], ActionResult]] = {
    SetVgpuScheduler: set_scheduler,
    RestoreVgpuScheduler: restore_scheduler,
    SetVgpuParameters: set_parameters,
    ClearVgpuParameters: clear_parameters,
}
