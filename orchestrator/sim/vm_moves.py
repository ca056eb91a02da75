# SPDX-License-Identifier: Apache-2.0
"""A running VM goes from one host in memory to another, or onto its disk: what hosts do, as their agents would."""

from __future__ import annotations

from orchestrator.core.actions.host_actions import ActionResult
from orchestrator.core.actions.live_move import LiveMove, MovedVm, MoveLoad
from orchestrator.core.actions.suspension import SuspendDomain
from orchestrator.core.errors import Conflict, NotFound
from orchestrator.core.units import MIB
from orchestrator.core.vms.vm import memory_file
from orchestrator.sim.machine import DONE, SO_ALREADY, SimulatedMachine, check_disk, claim, may_die, release


def await_vm(machine: SimulatedMachine, move: LiveMove) -> ActionResult:
    """:raises NotFound: ``vm.not_found``; :raises Conflict: ``vm.running``, ``vm.device_foreign``"""
    domain = machine.domains.get(move.vm)
    if domain is None or machine.owner(f"domain:{move.vm}") is None:
        raise NotFound("vm.not_found", "the VM is not defined on this host")
    if domain.running:
        raise Conflict("vm.running", "the VM is running")
    if domain.devices != move.devices or not machine.kernel.devices().issuperset(move.devices):
        raise Conflict("vm.device_foreign", "the VM's definition takes a device that is not the VM's")
    domain.paused = True
    return DONE


def load_of(machine: SimulatedMachine, vm: str) -> MoveLoad:
    """:raises NotFound: ``vm.not_found``"""
    domain = machine.domains.get(vm)
    if domain is None:
        raise NotFound("vm.not_found", "the VM is not defined on this host")
    return MoveLoad(memory_bytes=domain.memory_mib * MIB)


def leave_vm(machine: SimulatedMachine, move: LiveMove) -> MovedVm:
    """:raises NotFound: ``vm.not_found``; :raises Conflict: ``vm.not_running``"""
    domain = machine.domains.get(move.vm)
    if domain is None:
        raise NotFound("vm.not_found", "the VM is not defined on this host")
    if not domain.running:
        raise Conflict("vm.not_running", "the VM does not run")
    sent = load_of(machine, move.vm).memory_bytes
    machine.power_off(move.vm)
    del machine.domains[move.vm]
    machine.consoles.pop(move.vm, None)
    machine.described.pop(move.vm, None)
    may_die(machine)
    return MovedVm(sent_bytes=sent)


def suspend(machine: SimulatedMachine, action: SuspendDomain) -> ActionResult:
    """:raises Conflict: ``vm.not_running``; :raises Fatal: ``host.disk_full``"""
    domain, file = machine.domains.get(action.vm), memory_file(action.vm)
    if domain is None or not domain.running:
        if file in machine.volumes:
            return SO_ALREADY
        raise Conflict("vm.not_running", "the VM does not run")
    check_disk(machine)
    claim(machine, f"volume:{file}", action.vm)
    machine.volumes[file] = action.max_bytes // 2
    machine.power_off(action.vm)
    may_die(machine)
    return DONE


def forget_memory(machine: SimulatedMachine, vm: str) -> bool:
    """Whether the VM's memory was in a file of it; not any more."""
    release(machine, f"volume:{memory_file(vm)}", vm)
    return machine.volumes.pop(memory_file(vm), None) is not None
