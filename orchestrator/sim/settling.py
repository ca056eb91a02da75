# SPDX-License-Identifier: Apache-2.0
"""A lost ledger is written again, as the agent does: from what the database knows and what is there."""

from __future__ import annotations

from orchestrator.core.host_actions import ActionResult
from orchestrator.core.settle_ledger import KnownVm, SettleLedger
from orchestrator.core.volume import id_of
from orchestrator.sim.machine import SimulatedMachine
from orchestrator.sim.upkeep import claim
from orchestrator.sim.vgpu_actions import hold, is_as_made, key_of


def settle(machine: SimulatedMachine, action: SettleLedger) -> ActionResult:
    if not machine.ledger.lost:
        return ActionResult(changed=False)
    machine.ledger.managed = frozenset(action.gpus)
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
        if is_as_made(machine.kernel, device):
            claim(machine, key_of(device), vm.vm, until_reboot=True)
            if device.gi_start is not None:
                hold(machine, device.gpu, device.gi_start, vm.vm)
    if vm.nic is not None and vm.nic.vf in machine.kernel.nic_vfio:
        claim(machine, f"nic:{vm.nic.vf}", vm.vm, until_reboot=True)
