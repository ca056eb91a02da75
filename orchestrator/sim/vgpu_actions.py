# SPDX-License-Identifier: Apache-2.0
"""Making and removing vGPUs as the agent does: read, decide, write, read again; and what it reports of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from orchestrator.agent.sysfs.write import error_for
from orchestrator.core.actions.gpu_cards import AcceptGpus
from orchestrator.core.actions.host_actions import (
    ActionResult,
    ClearVgpuType,
    DisableVirtualFunctions,
    EnableVirtualFunctions,
    HostAction,
    MakeVgpu,
    ManageGpus,
    RemoveMdev,
)
from orchestrator.core.actions.vgpu_settings import ClearVgpuParameters, SetVgpuParameters
from orchestrator.core.errors import Conflict, Denied, Fatal, WorldError
from orchestrator.core.gpu.device import Device, Framework, Mdev, VgpuParent
from orchestrator.core.names import is_uuid
from orchestrator.sim.kernel import VFIO, Kernel, SimulatedGpu
from orchestrator.sim.machine import ABSENT, DESTROYED, DONE, SO_ALREADY, SimulatedMachine, claim, may_die, release


def key_of(device: Device) -> str:
    """Its name in the ledger."""
    return f"{'mdev' if is_uuid(device.name) else 'vf'}:{device.name}"


def holders(machine: SimulatedMachine, gpu: str, start: int) -> dict[str, str]:
    """VM → its key, of those that have the GPU instance there."""
    first = f"gi:{gpu}:{start}"
    keys = [key for key in machine.ledger.owners if key == first or key.startswith(f"{first}:")]
    return {vm: key for key in keys if (vm := machine.owner(key)) is not None}


class OpenVgpu(NamedTuple):
    """``name``: what its domain calls it."""

    name: str
    type_name: str
    vm: str


def open_vgpus(machine: SimulatedMachine, gpu: SimulatedGpu) -> Iterator[OpenVgpu]:
    """Those that running VMs have."""
    kernel = machine.kernel
    for vm, domain in machine.domains.items():
        for name in domain.devices if domain.running else ():
            parent, type_name = kernel.mdevs.get(name, (name, kernel.typed.get(name, "")))
            if gpu.has(parent):
                yield OpenVgpu(name, type_name, vm)


def hold(machine: SimulatedMachine, gpu: str, start: int, vm: str) -> None:
    held, first = holders(machine, gpu, start), f"gi:{gpu}:{start}"
    if vm not in held:
        claim(machine, first if machine.owner(first) is None else f"{first}:{vm}", vm, until_reboot=True)


def drop(machine: SimulatedMachine, gpu: str, start: int, vm: str) -> None:
    key = holders(machine, gpu, start).get(vm)
    if key is not None:
        release(machine, key, vm)


def forget_gone(machine: SimulatedMachine, vm: str) -> None:
    """What the ledger has of the VM's domain, which is undefined, and of vGPUs and instances that are not there."""
    kernel = machine.kernel
    present = {f"mdev:{uuid}" for uuid in kernel.mdevs} | {f"vf:{function}" for function in kernel.typed}
    present |= {f"gi:{gpu.address}:{start}" for gpu in kernel.gpus for _, start in gpu.instances.values()}
    for key in [key for key in machine.ledger.owners if machine.owner(key) == vm]:
        if key.startswith(("domain:", "mdev:", "vf:", "gi:")) and key.removesuffix(f":{vm}") not in present:
            release(machine, key, vm)


def is_as_made(kernel: Kernel, device: Device) -> bool:
    """Whether the kernel has it, with that type and in that place."""
    if device.is_whole_gpu:
        gpu = kernel.gpu_of(device.gpu)
        return gpu is not None and gpu.driver == VFIO
    if is_uuid(device.name):
        return kernel.mdevs.get(device.name) == (device.parent, device.type_name)
    return kernel.typed.get(device.parent) == device.type_name


def make(machine: SimulatedMachine, action: MakeVgpu) -> ActionResult:
    """Where on its GPU it lies, the kernel chooses."""
    return _set_type(machine, action) if action.uuid is None else _create_mdev(machine, action, action.uuid)


def take_back(machine: SimulatedMachine, action: MakeVgpu) -> None:
    back = action.inverse()
    if isinstance(back, RemoveMdev):
        remove_mdev(machine, back)
    else:
        clear_type(machine, back)


def make_at(machine: SimulatedMachine, action: MakeVgpu, placement_id: int) -> ActionResult:
    """Moved from where the driver put it, or taken back."""
    made, name, kernel = make(machine, action), action.name, machine.kernel
    if name in kernel.places and kernel.places[name].start == placement_id:
        return made
    check_unused(machine, name)
    try:
        write("placement_id", lambda: kernel.write_place(name, placement_id))
    except WorldError as error:
        take_back(machine, action)
        raise Conflict(
            "vgpu.placement_refused", f"the driver does not put the vGPU at placement {placement_id}"
        ) from error
    may_die(machine)
    return DONE


def _create_mdev(machine: SimulatedMachine, action: MakeVgpu, uuid: str) -> ActionResult:
    check_managed(machine, action.parent)
    key, kernel = f"mdev:{uuid}", machine.kernel
    existing = kernel.mdevs.get(uuid)
    if existing is not None:
        check_owner(machine, key, action.vm)
        if existing != (action.parent, action.type_name):
            raise Conflict("vgpu.differs", "the vGPU exists with another type or parent")
        return SO_ALREADY
    gpu = kernel.gpu_of(action.parent)
    if gpu is None or action.parent not in gpu.parents() or gpu.kind.type_named(action.type_name) is None:
        raise Fatal("vgpu.type_unknown", f"{action.parent} does not offer {action.type_name}")
    used = action.parent != gpu.address and kernel.vgpu_on(action.parent) is not None
    if used or all(vgpu_type.name != action.type_name for vgpu_type in kernel.creatable(gpu)):
        raise Fatal("vgpu.no_room", f"{action.parent} takes no {action.type_name} now")
    claim(machine, key, action.vm, until_reboot=True)
    try:
        write("create", lambda: kernel.create_mdev(action.parent, action.type_name, uuid))
    except WorldError:
        if uuid not in kernel.mdevs:
            release(machine, key, action.vm)
        raise
    may_die(machine)
    return DONE


def remove_mdev(machine: SimulatedMachine, action: RemoveMdev) -> ActionResult:
    key = f"mdev:{action.uuid}"
    if action.uuid not in machine.kernel.mdevs:
        release(machine, key, action.vm)
        return ABSENT
    check_owner(machine, key, action.vm)
    check_unused(machine, action.uuid)
    write("remove", lambda: machine.kernel.remove_mdev(action.uuid))
    release(machine, key, action.vm)
    return DESTROYED


def _set_type(machine: SimulatedMachine, action: MakeVgpu) -> ActionResult:
    check_managed(machine, action.parent)
    key, kernel = f"vf:{action.parent}", machine.kernel
    gpu = kernel.gpu_of(action.parent)
    if gpu is None or action.parent not in gpu.parents() or gpu.kind.mediated:
        raise Fatal("vgpu.function_gone", "the virtual function cannot be read")
    existing = kernel.typed.get(action.parent)
    if existing is not None:
        check_owner(machine, key, action.vm)
        if existing != action.type_name:
            raise Conflict("vgpu.differs", "the virtual function has another vGPU type")
        return SO_ALREADY
    chosen = next((vgpu_type for vgpu_type in kernel.creatable(gpu) if vgpu_type.name == action.type_name), None)
    if chosen is None:
        raise Fatal("vgpu.no_room", f"{action.parent} takes no {action.type_name} now")
    claim(machine, key, action.vm, until_reboot=True)
    try:
        write("current_vgpu_type", lambda: kernel.write_type(action.parent, chosen.type_id))
    except WorldError:
        if action.parent not in kernel.typed:
            release(machine, key, action.vm)
        raise
    may_die(machine)
    return DONE


def clear_type(machine: SimulatedMachine, action: ClearVgpuType) -> ActionResult:
    key = f"vf:{action.vf}"
    if machine.owner(key) != action.vm:
        return ABSENT
    if action.vf not in machine.kernel.typed:
        release(machine, key, action.vm)
        return ABSENT
    check_unused(machine, action.vf)
    write("current_vgpu_type", lambda: machine.kernel.write_type(action.vf, 0))
    release(machine, key, action.vm)
    return DESTROYED


def manage(machine: SimulatedMachine, action: ManageGpus) -> ActionResult:
    wanted = frozenset(action.gpus)
    for gpu in machine.kernel.gpus:
        if gpu.address in machine.ledger.managed - wanted:
            check_no_vgpus(machine, gpu.address)
            before = machine.ledger.mig_before.pop(gpu.address, gpu.mig)
            if before != gpu.mig:
                machine.kernel.set_mig(gpu, on=before)
    changed, machine.ledger.managed = machine.ledger.managed != wanted, wanted
    known = machine.ledger.cards
    machine.ledger.cards = {
        gpu.address: known.get(gpu.address, machine.uuid_of(gpu))
        for gpu in machine.kernel.gpus
        if gpu.address in wanted
    }
    return ActionResult(changed=changed)


def accept(machine: SimulatedMachine, action: AcceptGpus) -> ActionResult:
    """A card that is elsewhere now is there no more."""
    now, known = {card.address: card.uuid for card in action.cards}, machine.ledger.cards
    stay = {address: uuid for address, uuid in known.items() if uuid not in now.values()}
    machine.ledger.managed = machine.ledger.managed - known.keys() | stay.keys() | now.keys()
    machine.ledger.cards = stay | now
    return ActionResult(changed=machine.ledger.cards != known)


def enable(machine: SimulatedMachine, action: EnableVirtualFunctions) -> ActionResult:
    return _switch(machine, action.gpu, on=True)


def disable(machine: SimulatedMachine, action: DisableVirtualFunctions) -> ActionResult:
    check_no_vgpus(machine, action.gpu)
    return _switch(machine, action.gpu, on=False)


def _switch(machine: SimulatedMachine, address: str, *, on: bool) -> ActionResult:
    check_managed(machine, address)
    gpu = machine.gpu_at(address)
    if gpu is not None and (bool(gpu.functions) == on or gpu.driver == VFIO):
        return SO_ALREADY
    if gpu is None or not gpu.kind.total_vfs:
        raise Fatal("gpu.no_sriov", f"GPU {address} has no virtual functions")
    if any(not holders(machine, address, start) for _, start in gpu.instances.values()):
        raise Conflict("gpu.in_use", f"GPU {address} has GPU instances that we did not make")
    machine.kernel.switch_functions(gpu, on=on)
    return DONE


def check_no_vgpus(machine: SimulatedMachine, address: str) -> None:
    gpu = machine.gpu_at(address)
    busy = gpu is not None and (gpu.driver == VFIO or gpu.instances or any(True for _ in machine.kernel.types_on(gpu)))
    if busy:
        raise Conflict("gpu.in_use", f"GPU {address} has vGPUs or is in use")


def write(what: str, write: Callable[[], None]) -> None:
    """:raises WorldError: what the agent would make of the kernel's errno"""
    try:
        write()
    except OSError as error:
        raise error_for(error.errno or 0, Path("/sys") / what, "") from error


def check_managed(machine: SimulatedMachine, address: str) -> None:
    gpu = machine.kernel.gpu_of(address)
    if gpu is None or gpu.address not in machine.ledger.managed:
        raise Denied("gpu.not_managed", f"GPU of {address} was not given to us")
    if not machine.is_ours(gpu):
        raise Conflict("gpu.replaced", f"another card is at {gpu.address} than was accepted")


def check_owner(machine: SimulatedMachine, key: str, vm: str) -> None:
    if machine.owner(key) != vm:
        raise Conflict("vgpu.foreign", "the vGPU there is not this VM's")


def owner_of(machine: SimulatedMachine, name: str) -> str | None:
    return machine.owner(f"mdev:{name}") or machine.owner(f"vf:{name}")


def check_unused(machine: SimulatedMachine, device: str) -> None:
    if device in machine.kernel.opened:
        raise Conflict("vgpu.in_use", "a process still uses the vGPU")


def set_parameters(machine: SimulatedMachine, action: SetVgpuParameters) -> ActionResult:
    if owner_of(machine, action.name) != action.vm:
        raise Conflict("vgpu.foreign", "the vGPU there is not this VM's")
    return _write_parameters(machine, action.name, action.text)


def clear_parameters(machine: SimulatedMachine, action: ClearVgpuParameters) -> ActionResult:
    if owner_of(machine, action.name) != action.vm or action.name not in machine.kernel.devices():
        return SO_ALREADY
    return _write_parameters(machine, action.name, "")


def _write_parameters(machine: SimulatedMachine, name: str, text: str) -> ActionResult:
    current = machine.kernel.parameters.get(name, "")
    if current == text:
        return SO_ALREADY
    check_unused(machine, name)
    for value in (" ", text) if current and text else (text or " ",):
        write("vgpu_params", partial(machine.kernel.write_parameters, name, value))
    may_die(machine)
    return DONE


def framework_of(gpu: SimulatedGpu) -> Framework:
    """As the agent finds it by the files of the GPU."""
    if gpu.driver == VFIO:
        return "passthrough"
    on: Framework = "mdev" if gpu.kind.mediated or not gpu.kind.total_vfs else "vendor_vfio"
    return on if gpu.parents() else "none"


@lru_cache(maxsize=4096)
def _idle_function(address: str, creatable: tuple[str, ...]) -> VgpuParent:
    return VgpuParent(
        address=address, is_vf=True, current_type=None, creatable=creatable, mdevs=(), owner=None, in_use=False
    )


def observed_parent(
    machine: SimulatedMachine, gpu: SimulatedGpu, address: str, creatable: tuple[str, ...]
) -> VgpuParent:
    """What is on a function of the GPU. ``creatable``: types that the driver takes there now."""
    kernel = machine.kernel
    typed, vgpu = kernel.typed.get(address), kernel.vgpu_on(address)
    if gpu.kind.total_vfs and vgpu is None:
        return _idle_function(address, creatable)
    mdevs = tuple(
        Mdev(uuid=uuid, type_name=name, owner=machine.owner(f"mdev:{uuid}"), placement_id=_place(kernel, uuid))
        for uuid, (parent, name) in sorted(kernel.mdevs.items())
        if parent == address
    )
    return VgpuParent(
        address=address,
        is_vf=bool(gpu.kind.total_vfs),
        current_type=typed,
        creatable=creatable,
        mdevs=mdevs,
        owner=machine.owner(f"vf:{address}") if typed is not None else None,
        in_use=address in kernel.opened or any(mdev.uuid in kernel.opened for mdev in mdevs),
        gpu_instance=kernel.inside.get(vgpu or ""),
        placement_id=_place(kernel, address),
    )


def _place(kernel: Kernel, device: str) -> int | None:
    place = kernel.places.get(device)
    return None if place is None else place.start


HANDLERS: dict[type[HostAction], Callable[[SimulatedMachine, Any], ActionResult]] = {
    RemoveMdev: remove_mdev,
    ClearVgpuType: clear_type,
    SetVgpuParameters: set_parameters,
    ClearVgpuParameters: clear_parameters,
}
"""Of all kinds of device."""
