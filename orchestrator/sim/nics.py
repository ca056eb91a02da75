# SPDX-License-Identifier: Apache-2.0
"""Network cards of a host in memory, and giving their virtual functions to VMs as the agent does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orchestrator.core.actions.host_actions import ActionResult, HostAction
from orchestrator.core.actions.nics import GiveNicFunction, TakeNicFunction
from orchestrator.core.errors import Conflict, Fatal
from orchestrator.core.hosts.nic import HostNic, NicFunction
from orchestrator.sim.machine import DONE, SO_ALREADY, SimulatedMachine, claim, may_die, release


def observe(machine: SimulatedMachine) -> tuple[HostNic, ...]:
    return tuple(
        HostNic(
            address=card.address, vendor="15b3", device="101d", numa_node=card.numa_node, bridges=card.bridges,
            interface=f"rdma{number}", functions=tuple(_function(machine, address) for address in card.addresses),
        )
        for number, card in enumerate(machine.kernel.nics)
    )  # fmt: skip


def _function(machine: SimulatedMachine, address: str) -> NicFunction:
    owner, held = machine.owner(f"nic:{address}"), None
    if owner is None and address in machine.kernel.nic_vfio:
        held = "vfio-pci has it, and we did not give it there"
    return NicFunction(address=address, owner=owner, held=held)


def give(machine: SimulatedMachine, action: GiveNicFunction) -> ActionResult:
    key, kernel = f"nic:{action.vf}", machine.kernel
    card = next((nic for nic in kernel.nics if nic.address == action.card), None)
    if card is not None and not card.functions:
        card.functions = action.functions
    if card is None or action.vf not in card.addresses:
        raise Fatal("nic.function_gone", f"network card {action.card} has no function {action.vf}")
    owner = machine.owner(key)
    if owner not in {None, action.vm}:
        raise Conflict("nic.foreign", f"network function {action.vf} is another VM's")
    if owner is None:
        if action.vf in kernel.nic_vfio:
            raise Conflict("nic.in_use", f"network function {action.vf} can be no VM's")
        claim(machine, key, action.vm, until_reboot=True)
    if action.vf in kernel.nic_vfio:
        return SO_ALREADY
    may_die(machine)
    kernel.nic_vfio[action.vf] = action.mac
    may_die(machine)
    return DONE


def take_back(machine: SimulatedMachine, action: TakeNicFunction) -> ActionResult:
    key = f"nic:{action.vf}"
    if machine.owner(key) != action.vm:
        return SO_ALREADY
    if action.vf in machine.kernel.opened:
        raise Conflict("vgpu.in_use", "a process still uses the network function")
    machine.kernel.nic_vfio.pop(action.vf, None)
    may_die(machine)
    release(machine, key, action.vm)
    return DONE


HANDLERS: dict[type[HostAction], Callable[[SimulatedMachine, Any], ActionResult]] = {
    GiveNicFunction: give,
    TakeNicFunction: take_back,
}
