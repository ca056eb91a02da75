# SPDX-License-Identifier: Apache-2.0
"""vGPUs of several sizes on one GPU, as the agent makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orchestrator.core.actions.host_actions import ActionResult, HostAction
from orchestrator.core.actions.vgpu_settings import RestoreMixedSizes, SetMixedSizes
from orchestrator.core.errors import Fatal
from orchestrator.sim import gpu_setting
from orchestrator.sim.machine import SimulatedMachine
from orchestrator.sim.upkeep import gpu_there
from orchestrator.sim.vgpu_actions import check_managed, check_no_vgpus


def set_mixed_sizes(machine: SimulatedMachine, action: SetMixedSizes) -> ActionResult:
    check_managed(machine, action.gpu)
    gpu = gpu_there(machine, action.gpu)
    now = machine.kernel.mixed_sizes_of(gpu)
    if now is None:
        raise Fatal("gpu.no_mixed_sizes", f"the driver mixes no vGPU sizes on GPU {action.gpu}")
    if not now:
        check_no_vgpus(machine, action.gpu)
        machine.ledger.mixed_sizes[action.gpu] = machine.boot
    return gpu_setting.want(
        machine, machine.ledger.mixed_sizes_users, action.gpu, action.vm, so_already=now,
        change=lambda: machine.kernel.set_mixed_sizes(gpu, on=True),
    )  # fmt: skip


def restore_mixed_sizes(machine: SimulatedMachine, action: RestoreMixedSizes) -> ActionResult:
    users = machine.ledger.mixed_sizes_users
    return gpu_setting.want_no_more(machine, users, action.gpu, action.vm, put_mixed_sizes_back)


def put_mixed_sizes_back(machine: SimulatedMachine, address: str) -> bool:
    """Whether the GPU is another one now. Where a vGPU is on it, it is left for later."""
    kernel, set_by_us = machine.kernel, machine.ledger.mixed_sizes
    ours = set_by_us.get(address) == machine.boot
    differs = ours and kernel.mixed_sizes_of(gpu_there(machine, address)) is True
    return gpu_setting.put_back(
        machine, set_by_us, address, differs=differs,
        change=lambda: kernel.set_mixed_sizes(gpu_there(machine, address), on=False),
    )  # fmt: skip


HANDLERS: dict[type[HostAction], Callable[[SimulatedMachine, Any], ActionResult]] = {
    SetMixedSizes: set_mixed_sizes,
    RestoreMixedSizes: restore_mixed_sizes,
}
