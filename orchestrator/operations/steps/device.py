# SPDX-License-Identifier: Apache-2.0
"""The VM's vGPU. It exists while the VM runs; its claim exists as long as the VM."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.core.attachments import attachment_of, draw, exclusive_function
from orchestrator.core.diff.vms import remove_device
from orchestrator.core.errors import Conflict, Fatal, NoCapacity, Reason
from orchestrator.core.host_actions import EnableVirtualFunctions
from orchestrator.core.snapshot import GpuSnapshot
from orchestrator.core.vm import Device, Vm
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step
from orchestrator.ports.store.claims import ClaimLost

_ELSEWHERE = frozenset({"vgpu.foreign", "vgpu.no_room", "vgpu.type_unknown", "vgpu.function_gone"})
"""Nothing was made, and another function of the same GPU may do."""


def _create(context: Context) -> str:
    vm = context.known_vm()
    try:
        context.perform(attachment_of(vm.device).create(vm.id, vm.device))
    except (Conflict, Fatal) as error:
        if error.code not in _ELSEWHERE:
            raise
        vm = _redraw(context, vm, error)
        context.perform(attachment_of(vm.device).create(vm.id, vm.device))
    return _text(vm.device)


def _redraw(context: Context, vm: Vm, cause: Conflict | Fatal) -> Vm:
    """Another function of the claimed GPU, or the same one once the GPU's functions are on again."""
    gpu = _gpu_now(context, vm.device.gpu)
    if attachment_of(vm.device).still_free(gpu, vm.device, vm.id) and cause.code != "vgpu.foreign":
        return vm
    if vm.spec.adopted is not None:  # its definition names the device, and is not ours to change
        raise _taken_away(gpu, vm) from cause
    with context.begin() as tx:
        taken = frozenset(c.function for c in tx.claims.of_host(vm.host) if c.function and c.vm != vm.id)
        device = draw(gpu, vm.device.type_name, taken=taken | {vm.device.parent}, new_uuid=context.world.ids.new_uuid())
        if device is None:
            raise _taken_away(gpu, vm) from cause
        moved = replace(vm, device=device)
        try:
            tx.claims.move_function(vm.id, exclusive_function(device))
        except ClaimLost as error:
            raise _taken_away(gpu, vm) from error
        tx.vms.update(moved)
    return moved


def _gpu_now(context: Context, address: str) -> GpuSnapshot:
    gpu = _find(context, address)
    if gpu.sriov_total_vfs and not gpu.sriov_enabled_vfs and gpu.driver == "nvidia":
        context.perform(EnableVirtualFunctions(gpu=address))
        gpu = _find(context, address)
    return gpu


def _find(context: Context, address: str) -> GpuSnapshot:
    for gpu in context.observe().gpus:
        if gpu.address == address:
            return gpu
    raise Fatal(
        "gpu.gone",
        f"GPU {address} is not seen on host {context.host_name} any more",
        hint="look at the host: 'vgpuctl host show' lists what it sees",
    )


def _taken_away(gpu: GpuSnapshot, vm: Vm) -> NoCapacity:
    reason = Reason(
        code="gpu.taken_by_others",
        message="functions of the GPU are used by vGPUs that we did not make",
        subjects=(f"{vm.host} {gpu.address}",),
    )
    return NoCapacity(
        "gpu.no_capacity",
        f"no function of GPU {gpu.address} is free for {vm.device.type_name}",
        hint="look at what else uses the GPU: vgpuctl gpu show",
        reasons=(reason,),
    )


def _remove(context: Context) -> None:
    vm = context.vm()
    if vm is None or vm.deallocated is not None:  # what a deallocated one had may be somebody else's now
        return
    context.perform(remove_device(vm))


def _removed(context: Context) -> str:
    _remove(context)
    return ""


def _text(device: Device) -> str:
    return f"{device.type_name} on {device.parent}"


def _remains(context: Context) -> tuple[str, ...]:
    vm = context.vm()
    if vm is None:
        return ()
    name = vm.device.mdev_uuid or vm.device.parent
    return (f"vGPU {name} ({vm.device.type_name}) on GPU {vm.device.gpu} of host {vm.host}",)


DEVICE = Step(name="device.1", title="vGPU", do=_create, undo=_remove, remains=_remains)
REMOVE_DEVICE = Step(
    name="remove_device.1",
    title="remove the vGPU",
    do=_removed,
    no_undo_reason="starting the VM makes it again",
    remains=_remains,
)
