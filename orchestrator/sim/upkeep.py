# SPDX-License-Identifier: Apache-2.0
"""What every action of an agent shares: writing down owners before acting, dying in the middle."""

from __future__ import annotations

from orchestrator.core.actions.host_actions import ActionResult
from orchestrator.core.errors import Conflict, Fatal
from orchestrator.sim.kernel import SimulatedGpu
from orchestrator.sim.machine import SimulatedMachine

DONE, SO_ALREADY = ActionResult(changed=True), ActionResult(changed=False)


class AgentDied(Exception):
    """The agent's process ends here; systemd starts it again. Nobody gets an answer."""


def may_die(machine: SimulatedMachine) -> None:
    if machine.agent_deaths:
        machine.agent_deaths -= 1
        raise AgentDied


def check_disk(machine: SimulatedMachine) -> None:
    if machine.disk_full:
        raise Fatal("host.disk_full", "the host's disk is full", hint="free some space there")


def claim(machine: SimulatedMachine, key: str, vm: str, *, until_reboot: bool = False) -> None:
    owner = machine.owner(key)
    if owner is not None and owner != vm:
        raise Conflict("host.owned_by_other", f"{key} belongs to another VM")
    machine.ledger.owners[key] = (vm, machine.boot if until_reboot else None)
    may_die(machine)


def release(machine: SimulatedMachine, key: str, vm: str) -> None:
    may_die(machine)
    if machine.owner(key) in {vm, None}:
        machine.ledger.owners.pop(key, None)


def gpu_there(machine: SimulatedMachine, address: str) -> SimulatedGpu:
    """:raises Fatal: ``vgpu.function_gone``"""
    gpu = machine.gpu_at(address)
    if gpu is None:
        raise Fatal("vgpu.function_gone", f"{address} is not there")
    return gpu
