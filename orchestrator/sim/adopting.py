# SPDX-License-Identifier: Apache-2.0
"""Taking over a domain and a vGPU that somebody else made, as the agent does: only the ledger changes."""

from __future__ import annotations

from orchestrator.core.errors import Conflict, Denied, NotFound
from orchestrator.core.host_actions import ActionResult, AdoptDomain, ReleaseDomain
from orchestrator.sim.machine import SimulatedMachine
from orchestrator.sim.upkeep import claim, release


def adopt(machine: SimulatedMachine, action: AdoptDomain) -> ActionResult:
    kernel, domain = machine.kernel, machine.domains.get(action.vm)
    gpu = kernel.gpu_of(action.parent)
    if gpu is None or gpu.address not in machine.ledger.managed:
        raise Denied("gpu.not_managed", f"{action.parent} is on no GPU that was given to us")
    device = action.mdev_uuid or action.parent
    if action.mdev_uuid is None:
        as_seen = kernel.typed.get(action.parent) == action.type_name
    else:
        as_seen = kernel.mdevs.get(action.mdev_uuid) == (action.parent, action.type_name)
    if not as_seen:
        raise Conflict("vgpu.differs", "the vGPU is not there any more as it was seen")
    claim(machine, _key(action), action.vm, until_reboot=True)
    if domain is None:
        raise NotFound("vm.not_found", "the domain is not defined on this host")
    if domain.devices != (device,):
        raise Conflict("vm.definition_differs", "the domain has other host devices than were seen")
    changed = not domain.adopted
    if changed and machine.owner(f"domain:{action.vm}") is not None:
        raise Conflict("host.owned_by_other", "the domain is ours already")
    claim(machine, f"domain:{action.vm}", action.vm)
    domain.adopted = True
    machine.foreign -= {device, action.vm}
    return ActionResult(changed=changed)


def release_domain(machine: SimulatedMachine, action: ReleaseDomain) -> ActionResult:
    domain = machine.domains.get(action.vm)
    changed = domain is not None and domain.adopted
    if domain is not None and not domain.adopted and machine.owner(f"domain:{action.vm}") is not None:
        raise Conflict("host.owned_by_other", "the domain was made by us")
    release(machine, f"domain:{action.vm}", action.vm)
    if domain is not None:
        domain.adopted = False
    release(machine, _key(action), action.vm)
    there = {*machine.domains, *machine.kernel.mdevs, *machine.kernel.typed}
    machine.foreign |= there & {action.vm, action.mdev_uuid or action.parent}
    return ActionResult(changed=changed)


def _key(action: AdoptDomain | ReleaseDomain) -> str:
    return f"mdev:{action.mdev_uuid}" if action.mdev_uuid is not None else f"vf:{action.parent}"
