# SPDX-License-Identifier: Apache-2.0
"""vGPUs of several sizes on one GPU, as the agent makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orchestrator.core.actions.host_actions import ActionResult, ClearVgpuType, HostAction, RemoveMdev
from orchestrator.core.actions.placed_vgpus import CreatePlacedMdev, SetPlacedType
from orchestrator.core.actions.vgpu_settings import RestoreMixedSizes, SetMixedSizes
from orchestrator.core.errors import Conflict, Fatal, VgpuctlError
from orchestrator.sim import gpu_setting
from orchestrator.sim.machine import SimulatedMachine
from orchestrator.sim.upkeep import DONE, gpu_there, may_die
from orchestrator.sim.vgpu_actions import (
    check_managed,
    check_no_vgpus,
    check_unused,
    clear_type,
    create_mdev,
    remove_mdev,
    set_type,
    write,
)


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


def set_placed_type(machine: SimulatedMachine, action: SetPlacedType) -> ActionResult:
    made = set_type(machine, action)
    back = ClearVgpuType(vm=action.vm, vf=action.vf)
    return _placed(machine, action.vf, action.placement_id, made, lambda: clear_type(machine, back))


def create_placed_mdev(machine: SimulatedMachine, action: CreatePlacedMdev) -> ActionResult:
    made = create_mdev(machine, action)
    back = RemoveMdev(vm=action.vm, uuid=action.uuid)
    return _placed(machine, action.uuid, action.placement_id, made, lambda: remove_mdev(machine, back))


def _placed(
    machine: SimulatedMachine, name: str, wanted: int, made: ActionResult, remove: Callable[[], object]
) -> ActionResult:
    """Moved from where the driver put it, or taken back."""
    kernel = machine.kernel
    if name in kernel.places and kernel.places[name].start == wanted:
        return made
    check_unused(machine, name)
    try:
        write("placement_id", lambda: kernel.write_place(name, wanted))
    except VgpuctlError as error:
        remove()
        raise Conflict("vgpu.placement_refused", f"the driver does not put the vGPU at placement {wanted}") from error
    may_die(machine)
    return DONE


HANDLERS: dict[type[HostAction], Callable[[SimulatedMachine, Any], ActionResult]] = {
    SetMixedSizes: set_mixed_sizes,
    RestoreMixedSizes: restore_mixed_sizes,
    SetPlacedType: set_placed_type,
    CreatePlacedMdev: create_placed_mdev,
}
