# SPDX-License-Identifier: Apache-2.0
"""What somebody else makes on a host: vGPUs and domains that the control plane knows nothing of."""

from __future__ import annotations

import uuid
from random import Random

from orchestrator.sim.machine import Domain, SimulatedMachine


def make_vgpu(machine: SimulatedMachine, draw: Random) -> str | None:
    """An mdev's UUID or the address of a typed function; None when the driver takes nothing there."""
    kernel, name = machine.kernel, _new_uuid(draw)
    gpu = draw.choice(kernel.gpus)
    offered = kernel.creatable(gpu)
    if not offered or kernel.next_errno:
        return None
    if not gpu.kind.total_vfs:
        kernel.create_mdev(gpu.address, offered[0].name, name)
        machine.foreign.add(name)
        return name
    free = [function for function in gpu.parents() if kernel.vgpu_on(function) is None]
    if not free:
        return None
    if gpu.kind.mediated:
        kernel.create_mdev(free[0], offered[0].name, name)
        machine.foreign.add(name)
        return name
    kernel.write_type(free[0], offered[0].type_id)
    machine.foreign.add(free[0])
    return free[0]


def make_domain(machine: SimulatedMachine, name: str, draw: Random) -> bool:
    """A domain that runs with a vGPU of its own; False when there is no room for one."""
    device = make_vgpu(machine, draw)
    if device is None:
        return False
    made = _new_uuid(draw)
    machine.domains[made] = Domain(
        name=name, devices=(device,), running=True, started_at=machine.now, vcpus=2, memory_mib=2048
    )
    machine.kernel.opened.add(device)
    machine.foreign.add(made)
    return True


def remove_domain(machine: SimulatedMachine, name: str) -> bool:
    """Its maker wants it no more; False when it is not there or not its maker's any more."""
    found = next((one for one, domain in machine.domains.items() if domain.name == name), None)
    if found is None or found not in machine.foreign or machine.owner(f"domain:{found}") is not None:
        return False
    if machine.domains[found].running:
        machine.power_off(found)
    devices = machine.domains.pop(found).devices
    machine.foreign.discard(found)
    for device in machine.foreign.intersection(devices):
        if machine.owner(f"mdev:{device}") is None and machine.owner(f"vf:{device}") is None:
            machine.kernel.mdevs.pop(device, None)
            machine.kernel.typed.pop(device, None)
            machine.foreign.discard(device)
    return True


def _new_uuid(draw: Random) -> str:
    return str(uuid.UUID(int=draw.getrandbits(128), version=4))
