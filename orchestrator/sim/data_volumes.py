# SPDX-License-Identifier: Apache-2.0
"""Data volumes as the agent handles them."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.core.actions.host_actions import (
    ActionResult,
)
from orchestrator.core.actions.volumes import (
    AttachVolume,
    CreateDataVolume,
    DeleteDataVolume,
    DetachVolume,
)
from orchestrator.core.errors import Conflict, Fatal, NotFound
from orchestrator.core.vms.volume import id_of
from orchestrator.sim.machine import SimulatedMachine
from orchestrator.sim.upkeep import DONE, SO_ALREADY, check_disk, claim, may_die, release


def create(machine: SimulatedMachine, action: CreateDataVolume) -> ActionResult:
    """:raises Fatal: ``host.disk_full``"""
    key, volume = f"data:{action.volume}", _id(action.volume)
    if action.volume in machine.data:
        if machine.data[action.volume] != action.size_bytes:
            raise Conflict("volume.differs", "the data volume exists with another size")
        return SO_ALREADY
    claim(machine, key, volume)
    try:
        check_disk(machine)
    except Fatal:
        release(machine, key, volume)
        raise
    machine.data[action.volume] = action.size_bytes
    may_die(machine)
    return DONE


def delete(machine: SimulatedMachine, action: DeleteDataVolume) -> ActionResult:
    """Gone already is fine."""
    if machine.owner(f"attached:{action.volume}") is not None:
        raise Conflict("volume.in_use", "a VM has the data volume")
    changed = machine.data.pop(action.volume, None) is not None
    release(machine, f"data:{action.volume}", _id(action.volume))
    return ActionResult(changed=changed)


def attach(machine: SimulatedMachine, action: AttachVolume) -> ActionResult:
    """For one VM at a time."""
    if action.volume not in machine.data:
        raise NotFound("volume.missing", "the data volume is not on the host")
    vm = machine.owner(f"attached:{action.volume}")
    if vm not in {None, action.vm}:
        raise Conflict("volume.in_use", "another VM has the data volume")
    claim(machine, f"attached:{action.volume}", action.vm)
    may_die(machine)
    return ActionResult(changed=vm is None)


def detach(machine: SimulatedMachine, action: DetachVolume) -> ActionResult:
    """One that another VM has is left alone."""
    if machine.owner(f"attached:{action.volume}") != action.vm:
        return SO_ALREADY
    domain = machine.domains.get(action.vm)
    if domain is not None and domain.running and action.volume in domain.data:
        raise Conflict("volume.in_use", "something has the data volume open")
    release(machine, f"attached:{action.volume}", action.vm)
    may_die(machine)
    return DONE


def check_data(machine: SimulatedMachine, vm: str, data: Iterable[str]) -> None:
    """That a definition takes only what the VM has.

    :raises Conflict: ``vm.file_foreign``"""
    for file in data:
        if machine.owner(f"attached:{file}") != vm:
            raise Conflict("vm.file_foreign", "the VM's definition takes a file that is not the VM's", details=file)


def _id(file: str) -> str:
    return id_of(file.removesuffix(".raw"))
