# SPDX-License-Identifier: Apache-2.0
"""A running VM goes from one host in memory to another: what each of them does, as their agents would."""

from __future__ import annotations

from orchestrator.core.actions.host_actions import ActionResult
from orchestrator.core.actions.live_move import LiveMove
from orchestrator.core.errors import Conflict, NotFound
from orchestrator.sim.machine import DONE, SimulatedMachine, may_die


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


def leave_vm(machine: SimulatedMachine, move: LiveMove) -> ActionResult:
    """:raises NotFound: ``vm.not_found``; :raises Conflict: ``vm.not_running``"""
    domain = machine.domains.get(move.vm)
    if domain is None:
        raise NotFound("vm.not_found", "the VM is not defined on this host")
    if not domain.running:
        raise Conflict("vm.not_running", "the VM does not run")
    machine.power_off(move.vm)
    del machine.domains[move.vm]
    machine.consoles.pop(move.vm, None)
    machine.described.pop(move.vm, None)
    may_die(machine)
    return DONE
