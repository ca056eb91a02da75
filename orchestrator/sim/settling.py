# SPDX-License-Identifier: Apache-2.0
"""A lost ledger is written again, as the agent does: from what the database knows and what is there."""

from __future__ import annotations

from orchestrator.core.actions.host_actions import ActionResult
from orchestrator.core.actions.settle_ledger import KnownVm, SettleLedger
from orchestrator.core.actions.vgpu_settings import SetGpuSetting
from orchestrator.core.attachments import make
from orchestrator.core.gpu.device import Device
from orchestrator.core.vms.volume import id_of
from orchestrator.sim.fabric import partition_key
from orchestrator.sim.gpu_settings import settings_of
from orchestrator.sim.machine import SimulatedMachine
from orchestrator.sim.upkeep import claim, gpu_there
from orchestrator.sim.vgpu_actions import hold, is_as_made, key_of


def settle(machine: SimulatedMachine, action: SettleLedger) -> ActionResult:
    """Where it was not lost: devices of domains of ours that nobody owns."""
    if not machine.ledger.lost:
        ours = [vm for vm in action.vms if machine.owner(f"domain:{vm.vm}") is not None]
        return ActionResult(changed=sum(_adopt(machine, vm.vm, one) for vm in ours for one in vm.devices) > 0)
    machine.ledger.managed = frozenset(action.gpus)
    for gpu in machine.kernel.gpus:
        found = {one.gpu: one.on for one in action.mig_modes}.get(gpu.address, gpu.mig)
        if found != gpu.mig:
            machine.ledger.mig_before[gpu.address] = found
    for vm in action.vms:
        _settle(machine, vm)
    for one in action.data:
        if one.volume in machine.data:
            claim(machine, f"data:{one.volume}", id_of(one.volume.removesuffix(".raw")))
            if one.vm is not None:
                claim(machine, f"attached:{one.volume}", one.vm)
    machine.ledger.lost = False
    return ActionResult(changed=True)


def _settle(machine: SimulatedMachine, vm: KnownVm) -> None:
    for kind, name, there in (
        ("volume", vm.volume, vm.volume in machine.volumes and not vm.adopted),
        ("seed", vm.seed, vm.seed in machine.seeds and not vm.adopted),
        ("domain", vm.vm, vm.vm in machine.domains),
    ):
        if there:
            claim(machine, f"{kind}:{name}", vm.vm)
    for device in vm.devices:
        _adopt(machine, vm.vm, device)
    if vm.nic is not None and vm.nic.vf in machine.kernel.nic_vfio:
        claim(machine, f"nic:{vm.nic.vf}", vm.vm, until_reboot=True)


def _adopt(machine: SimulatedMachine, vm: str, device: Device) -> bool:
    """Whether it is there as described and was nobody's; then it is the VM's."""
    key = f"gpu:{device.gpu}" if device.is_whole_gpu else key_of(device)
    if machine.owner(key) is not None or not is_as_made(machine.kernel, device):
        return False
    claim(machine, key, vm, until_reboot=True)
    if device.is_whole_gpu:
        machine.ledger.passed[device.gpu] = (device.type_name, gpu_there(machine, device.gpu).kind.total_vfs)
    if device.gi_start is not None:
        hold(machine, device.gpu, device.gi_start, vm)
    place, fabric = device.fabric, machine.kernel.fabric
    if place is not None and fabric is not None and place.partition in fabric.active:
        claim(machine, partition_key(place.partition), vm, until_reboot=True)
    for made_by in make(vm, device):
        if isinstance(made_by, SetGpuSetting):
            settings_of(machine).settle(made_by)
    return True
