# SPDX-License-Identifier: Apache-2.0
"""Taking over a domain and a vGPU that somebody else made, as the agent does: only the ledger changes."""

from __future__ import annotations

from orchestrator.core.actions.host_actions import ActionResult, AdoptDomain, ReleaseDomain
from orchestrator.core.errors import Conflict, Denied, NotFound
from orchestrator.sim.machine import SimulatedMachine
from orchestrator.sim.upkeep import claim, release
from orchestrator.sim.vgpu_actions import drop, hold, is_as_made, key_of


def adopt(machine: SimulatedMachine, action: AdoptDomain) -> ActionResult:
    domain, names = machine.domains.get(action.vm), {device.name for device in action.devices}
    for device in action.devices:
        gpu = machine.kernel.gpu_of(device.parent)
        if gpu is None or gpu.address not in machine.ledger.managed:
            raise Denied("gpu.not_managed", f"{device.parent} is on no GPU that was given to us")
        if not is_as_made(machine.kernel, device):
            raise Conflict("vgpu.differs", "the vGPU is not there any more as it was seen")
        claim(machine, key_of(device), action.vm, until_reboot=True)
        if device.gi_start is not None:
            hold(machine, device.gpu, device.gi_start, action.vm)
    if domain is None:
        raise NotFound("vm.not_found", "the domain is not defined on this host")
    if domain.devices != tuple(device.name for device in action.devices):
        raise Conflict("vm.definition_differs", "the domain has other host devices than were seen")
    changed = not domain.adopted
    if changed and machine.owner(f"domain:{action.vm}") is not None:
        raise Conflict("host.owned_by_other", "the domain is ours already")
    claim(machine, f"domain:{action.vm}", action.vm)
    domain.adopted = True
    machine.foreign -= {action.vm, *names}
    return ActionResult(changed=changed)


def release_domain(machine: SimulatedMachine, action: ReleaseDomain) -> ActionResult:
    domain = machine.domains.get(action.vm)
    changed = domain is not None and domain.adopted
    if domain is not None and not domain.adopted and machine.owner(f"domain:{action.vm}") is not None:
        raise Conflict("host.owned_by_other", "the domain was made by us")
    release(machine, f"domain:{action.vm}", action.vm)
    if domain is not None:
        domain.adopted = False
    for device in action.devices:
        release(machine, key_of(device), action.vm)
        if device.gi_start is not None:
            drop(machine, device.gpu, device.gi_start, action.vm)
    there = {*machine.domains, *machine.kernel.devices()}
    machine.foreign |= there & {action.vm, *(device.name for device in action.devices)}
    return ActionResult(changed=changed)
