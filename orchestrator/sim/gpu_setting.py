# SPDX-License-Identifier: Apache-2.0
"""A setting of a GPU that is changed for VMs and is as before once none wants it, as the agent keeps it
(agent/gpu_setting.py)."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

from orchestrator.core.actions.host_actions import ActionResult
from orchestrator.core.errors import Conflict
from orchestrator.sim.machine import SimulatedMachine
from orchestrator.sim.upkeep import DONE, SO_ALREADY, may_die
from orchestrator.sim.vgpu_actions import check_no_vgpus

Users = MutableMapping[str, list[str]]
"""GPU → the VMs that want it."""


def want(
    machine: SimulatedMachine, users: Users, gpu: str, vm: str, *, so_already: bool, change: Callable[[], None]
) -> ActionResult:
    """:raises Conflict: ``gpu.in_use``: its driver changes nothing now"""
    wanting = users.setdefault(gpu, [])
    if vm not in wanting:
        wanting.append(vm)
    may_die(machine)
    if so_already:
        return SO_ALREADY
    _changed(gpu, change)
    may_die(machine)
    return DONE


def want_no_more(
    machine: SimulatedMachine, users: Users, gpu: str, vm: str, put_back: Callable[[SimulatedMachine, str], bool]
) -> ActionResult:
    """The last one that leaves puts it back."""
    wanting = users.get(gpu, [])
    if vm in wanting:
        wanting.remove(vm)
    if wanting:
        return SO_ALREADY
    users.pop(gpu, None)
    may_die(machine)
    return ActionResult(changed=put_back(machine, gpu))


def put_back(
    machine: SimulatedMachine,
    before: MutableMapping[str, Any],
    gpu: str,
    *,
    differs: bool,
    change: Callable[[], None],
) -> bool:
    """Whether the GPU is another one now. Where a vGPU is on it, it is left for later."""
    if differs:
        try:
            check_no_vgpus(machine, gpu)
        except Conflict:
            return False
        _changed(gpu, change)
    before.pop(gpu, None)
    return differs


def _changed(gpu: str, change: Callable[[], None]) -> None:
    try:
        change()
    except OSError as error:
        raise Conflict("gpu.in_use", f"the driver of GPU {gpu} changes nothing of it now") from error
