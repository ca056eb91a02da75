# SPDX-License-Identifier: Apache-2.0
"""The VM's vGPUs. They exist while the VM runs; their claim exists as long as the VM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from orchestrator.core.actions.host_actions import (
    CreateGpuInstance,
    EnableVirtualFunctions,
    HostAction,
    MakesDevice,
    RemovesDevice,
)
from orchestrator.core.actions.nics import giving_nic
from orchestrator.core.actions.vgpu_settings import SetGpuSetting
from orchestrator.core.attachments import draw, make, observed_on, remove, still_free
from orchestrator.core.errors import Conflict, Fatal, NoCapacity, Reason
from orchestrator.core.gpu.device import Device
from orchestrator.core.hosts.snapshot import GpuSnapshot
from orchestrator.core.vms.vm import Vm
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step
from orchestrator.store.records import ClaimLost

_ANOTHER_ALONE = frozenset({"vgpu.foreign", "gpu.out_of_service"})
"""Another function alone will do, though that one may be free."""
_ELSEWHERE = _ANOTHER_ALONE | {"vgpu.no_room", "vgpu.type_unknown", "vgpu.function_gone"}
"""Nothing was made, and another function of the same GPU may do."""


_SHARED = (CreateGpuInstance, SetGpuSetting)
"""What several VMs may have of a GPU: that it was so before does not say for whom."""


def make_devices(context: Context) -> str:
    """All that the VM has; what is there already is left as it is."""
    vm = make_devices_at(context, context.known_vm())
    for action in giving_nic(vm.id, vm.nic):
        context.make(action.vf, action)
    return ", ".join(_shown(vm))


def make_devices_at(context: Context, vm: Vm) -> Vm:
    """``vm``: the operation's, or the place that is held for it where it moves, on the operation's host. As it is then:
    another function of a GPU may have had to do."""
    for number in range(len(vm.devices)):
        try:
            _check_in_service(context, vm.devices[number])
            _make(context, vm.devices[number])
        except (Conflict, Fatal) as error:
            if error.code not in _ELSEWHERE:
                raise
            vm = _redraw(context, vm, number, error)
            _make(context, vm.devices[number])
    return vm


def _check_in_service(context: Context, device: Device) -> None:
    """What is there already runs on. :raises Conflict: ``gpu.out_of_service``: its function takes no new vGPU"""
    if device.function is None:
        return
    with context.world.store.read() as tx:
        closed = device.function in tx.hosts.get(context.host_name).closed_functions
    if closed and not any(placed.device.name == device.name for placed in observed_on(_find(context, device.gpu))):
        raise Conflict(
            "gpu.out_of_service",
            f"virtual function {device.function} is out of service",
            hint=f"'vgpuctl health return {context.host_name} {device.function} --reason TEXT' gives it back",
        )


def _shown(vm: Vm) -> Iterator[str]:
    yield from (f"{device.type_name} on {device.parent}" for device in vm.devices)
    if vm.nic is not None:
        yield f"network function {vm.nic.function}"


def _make(context: Context, device: Device) -> None:
    context.note_made(device)
    for action in make(context.subject, device):
        if isinstance(action, MakesDevice) and not isinstance(action, _SHARED):
            context.make(_named(context, device, action), action)
        else:
            context.perform(action)


def _named(context: Context, device: Device, action: HostAction) -> str:
    """Functions of two hosts are called alike, and a VM that moves has one on each."""
    return f"{type(action).__name__} {device.name} of host {context.host_name}"


def _redraw(context: Context, vm: Vm, number: int, cause: Conflict | Fatal) -> Vm:
    """Another function of the claimed GPU, or the same one once the GPU's functions are on again."""
    before = vm.devices[number]
    gpu = _gpu_now(context, before.gpu)
    if still_free(gpu, before, context.subject) and cause.code not in _ANOTHER_ALONE:
        return vm
    if vm.spec.adopted is not None:  # its definition names the device, and is not ours to change
        raise _taken_away(gpu, vm, before, cause) from cause
    forget_devices(context, (before,))
    with context.begin() as tx:
        claimed = {one.function for claim in tx.claims.of_host(vm.host) for one in claim.devices if one.function}
        taken = frozenset(claimed | {before.parent} | tx.hosts.get(vm.host).closed_functions)
        fresh = context.world.ids.new_uuid()
        device = draw(gpu, before.type_name, taken=taken, new_uuid=fresh, instance=before.instance)
        if device is None:
            raise _taken_away(gpu, vm, before, cause) from cause
        device = device.set_like(before)
        moved = replace(vm, devices=(*vm.devices[:number], device, *vm.devices[number + 1 :]))
        try:
            tx.claims.move_function(vm.id, number, device.function)
        except ClaimLost as error:
            raise _taken_away(gpu, vm, before, cause) from error
        if vm.id == context.subject:
            tx.vms.change(vm.id, devices=moved.devices)
        else:
            tx.places.give(vm.id, moved.devices)
    return moved


def forget_devices(context: Context, devices: Iterable[Device]) -> None:
    """The agent shall not make them again after a reboot; what is there may be somebody else's by now."""
    for device in reversed(tuple(devices)):
        try:
            _unmake(context, device, remove(context.subject, device))
        except Conflict as error:
            if error.code != "vgpu.foreign":
                raise


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
        hint=f"look at the host: 'vgpuctl host show {context.host_name}' lists what it sees",
    )


def _taken_away(gpu: GpuSnapshot, vm: Vm, device: Device, cause: Conflict | Fatal) -> NoCapacity:
    """``cause``: why it is not the function that the VM had."""
    subjects = (f"{vm.host} {gpu.address}",)
    hint = f"look at what else uses the GPU: 'vgpuctl gpu show {vm.host} {gpu.address}'"
    if cause.code == "gpu.out_of_service":
        reason, hint = Reason(code="gpu.out_of_service", message=cause.message, subjects=subjects), cause.hint or hint
    else:
        reason = Reason(
            code="gpu.taken_by_others",
            message="functions of the GPU are used by vGPUs that we did not make",
            subjects=subjects,
        )
    return NoCapacity(
        "gpu.no_capacity",
        f"no function of GPU {gpu.address} is free for {device.type_name}",
        hint=hint,
        reasons=(reason,),
    )


def _remove(context: Context) -> None:
    vm = context.vm()
    if vm is None or vm.deallocated is not None:  # what a deallocated one had may be somebody else's now
        return
    for given in giving_nic(vm.id, vm.nic):
        context.perform(given.inverse())
    for device in reversed(vm.devices):
        _unmake(context, device, remove(vm.id, device))


def _unmake(context: Context, device: Device, actions: Iterable[HostAction]) -> None:
    """What removes the device or some of it, and how that was cleaned."""
    answers = [(action, context.perform(action)) for action in actions]
    cleaned = [result.cleaned for action, result in answers if isinstance(action, RemovesDevice) and action.cleans]
    context.note_cleaned(device, cleaned)


def remove_made(context: Context, devices: Iterable[Device]) -> None:
    """Those that were there before stay."""
    for device in reversed(tuple(devices)):
        made = make(context.subject, device)
        shared_left = not all(context.made(_named(context, device, action)) for action in made)
        inverses = []
        for action in reversed(made):
            inverse = action.inverse()
            kept = shared_left if isinstance(action, _SHARED) else not context.made(_named(context, device, action))
            if inverse is not None and not kept:
                inverses.append(inverse)
        _unmake(context, device, inverses)


def _remove_made(context: Context) -> None:
    """The VM may run with those that were there before."""
    vm = context.vm()
    if vm is None or vm.deallocated is not None:
        return
    for given in giving_nic(vm.id, vm.nic):
        if context.made(given.vf):
            context.perform(given.inverse())
    remove_made(context, vm.devices)


def _remains(context: Context) -> tuple[str, ...]:
    vm = context.vm()
    if vm is None:
        return ()
    nic = () if vm.nic is None else (f"network function {vm.nic.function} of host {vm.host}",)
    return (
        *(f"vGPU {device.name} ({device.type_name}) on GPU {device.gpu} of host {vm.host}" for device in vm.devices),
        *nic,
    )


DEVICE = Step(name="device.1", title="vGPU", do=make_devices, undo=_remove_made, remains=_remains)
REMOVE_DEVICE = Step(
    name="remove_device.1",
    title="remove the vGPU",
    do=_remove,
    no_undo_reason="starting the VM makes it again",
    remains=_remains,
)
