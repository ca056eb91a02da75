# SPDX-License-Identifier: Apache-2.0
"""Backups of VMs' disks and data volumes, as an agent stores and fetches them. All hosts in memory reach every
target, and each action is done at once; none has backups that its server does not know of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orchestrator.core.actions.backups import (
    FetchBackup,
    FetchVolume,
    FindRepositories,
    ListBackups,
    RemoveBackup,
    StoreBackup,
    UsesRepository,
    VerifyBackup,
)
from orchestrator.core.actions.host_actions import ActionResult, HostAction
from orchestrator.core.errors import NotFound
from orchestrator.sim.disk_snapshots import check_may_read, write_data
from orchestrator.sim.machine import DONE, SimulatedMachine, may_die
from orchestrator.sim.vm_actions import write_file


def _store(machine: SimulatedMachine, action: StoreBackup) -> ActionResult:
    """:raises NotFound: ``snapshot.missing``"""
    if action.part:
        check_may_read(machine, action.volume)
    elif machine.owner(f"volume:{action.volume}") != action.of_vm or action.volume not in machine.volumes:
        raise NotFound("snapshot.missing", "the snapshot is not on the host")
    added = 0 if _key(action) in machine.backups else action.size_bytes // 10
    machine.backups[_key(action)] = action.size_bytes
    may_die(machine)
    return ActionResult(changed=True, message=str(added))


def _fetch(machine: SimulatedMachine, action: FetchBackup) -> ActionResult:
    """:raises NotFound: ``backup.missing``; :raises Fatal: ``host.disk_full``"""
    _check(machine, action)
    return write_file(machine, machine.volumes, f"volume:{action.volume}", action.vm, action.disk_bytes)


def _fetch_volume(machine: SimulatedMachine, action: FetchVolume) -> ActionResult:
    """:raises NotFound: ``backup.missing``; :raises Fatal: ``host.disk_full``"""
    _check(machine, action)
    return write_data(machine, action.volume, action.volume_bytes)


def _key(action: UsesRepository) -> str:
    """Of what is in a repository."""
    return f"{action.backup}/{action.part}" if action.part else action.backup


def _check(machine: SimulatedMachine, action: UsesRepository) -> ActionResult:
    """:raises NotFound: ``backup.missing``"""
    if _key(action) not in machine.backups:
        raise NotFound("backup.missing", "the backup is not in its repository")
    return DONE


def _remove(machine: SimulatedMachine, action: RemoveBackup) -> ActionResult:
    for key in [key for key in machine.backups if key.partition("/")[0] == action.backup]:
        del machine.backups[key]
    may_die(machine)
    return DONE


HANDLERS: dict[type[HostAction], Callable[[SimulatedMachine, Any], ActionResult]] = {
    StoreBackup: _store,
    FetchBackup: _fetch,
    FetchVolume: _fetch_volume,
    VerifyBackup: lambda machine, action: DONE if action.given_up else _check(machine, action),
    RemoveBackup: _remove,
    FindRepositories: lambda _machine, _action: ActionResult(changed=False, message="[]"),
    ListBackups: lambda _machine, _action: ActionResult(changed=False, message="[]"),
}
