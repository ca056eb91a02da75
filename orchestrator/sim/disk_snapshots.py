# SPDX-License-Identifier: Apache-2.0
"""Snapshots of VMs' disks, as an agent takes and restores them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orchestrator.core.actions.disk_snapshots import CopySnapshot, RestoreSnapshot, TakeSnapshot
from orchestrator.core.actions.host_actions import ActionResult, HostAction
from orchestrator.core.errors import Conflict, NotFound
from orchestrator.sim.machine import DONE, SimulatedMachine, check_disk, may_die, release
from orchestrator.sim.vm_actions import write_file


def _take(machine: SimulatedMachine, action: TakeSnapshot) -> ActionResult:
    """:raises NotFound: ``volume.missing``; :raises Fatal: ``host.disk_full``"""
    if action.disk not in machine.volumes:
        raise NotFound("volume.missing", "the VM's disk is not on the host")
    domain = machine.domains.get(action.vm)
    taken_of = "running" if domain is not None and domain.running else "stopped"
    done = write_file(machine, machine.volumes, f"volume:{action.volume}", action.vm, action.size_bytes)
    return ActionResult(changed=done.changed, message=taken_of)


def _check_snapshot(machine: SimulatedMachine, vm: str, snapshot: str) -> None:
    if machine.owner(f"volume:{snapshot}") != vm or snapshot not in machine.volumes:
        raise NotFound("snapshot.missing", "the snapshot is not on the host")


def _copy(machine: SimulatedMachine, action: CopySnapshot) -> ActionResult:
    """:raises NotFound: ``snapshot.missing``; :raises Fatal: ``host.disk_full``"""
    _check_snapshot(machine, action.of, action.snapshot)
    base = machine.bases.get(action.disk)
    done = write_file(machine, machine.volumes, f"volume:{action.volume}", action.vm, action.size_bytes)
    if base is not None:
        machine.bases[action.volume] = base
    return done


def _restore(machine: SimulatedMachine, action: RestoreSnapshot) -> ActionResult:
    """:raises NotFound: ``snapshot.missing``; :raises Conflict: ``vm.running``; :raises Fatal: ``host.disk_full``"""
    domain = machine.domains.get(action.vm)
    if domain is not None and domain.running:
        raise Conflict("vm.running", "the VM is running")
    if machine.volumes.pop(action.copy, None) is None:
        _check_snapshot(machine, action.vm, action.volume)
        check_disk(machine)
    release(machine, f"volume:{action.copy}", action.vm)
    machine.volumes[action.disk] = action.size_bytes
    may_die(machine)
    return DONE


HANDLERS: dict[type[HostAction], Callable[[SimulatedMachine, Any], ActionResult]] = {
    TakeSnapshot: _take,
    CopySnapshot: _copy,
    RestoreSnapshot: _restore,
}
