# SPDX-License-Identifier: Apache-2.0
"""Backups of disks and data volumes on machines that live in memory: what was on a disk (``written``) is in its target
as well."""

from __future__ import annotations

import json
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
from orchestrator.core.errors import Fatal, NotFound
from tests.fakes.fake_machine import FakeMachine


def key_of(backup_id: str) -> str:
    """Under which what it holds is in ``written``."""
    return f"backup: {backup_id}"


def part_of(backup_id: str, part: str) -> str:
    """Of a data volume in it, as if that were a backup: under its key is what it holds, under its name its size."""
    return f"{backup_id}/{part}" if part else backup_id


def password_of(backup_id: str) -> str:
    """Under which the password is, with which it was stored."""
    return f"password: {backup_id}"


def name_of(backup_id: str) -> str:
    """Under which the VM's id, the size of its disk and its name are."""
    return f"name: {backup_id}"


def _named(machine: FakeMachine) -> list[tuple[str, str, int, str]]:
    """Backup, VM, size, TENANT/NAME of each."""
    named = [
        (key.removeprefix("name: "), *text.split())
        for key, text in machine.written.items()
        if key[:6] == "name: " and "/" not in key
    ]
    return [(backup, vm, int(size), name) for backup, vm, size, name in named]


def _find(machine: FakeMachine, _: FindRepositories) -> ActionResult:
    return ActionResult(changed=False, message=json.dumps(sorted({vm for _, vm, *_ in _named(machine)})))


def _list(machine: FakeMachine, action: ListBackups) -> ActionResult:
    its = [(backup, size, name) for backup, vm, size, name in _named(machine) if vm == action.of_vm]
    if any(machine.written[password_of(backup)] != action.password for backup, *_ in its):
        raise Fatal("backup.password", "the repository has another password")
    found = [
        (backup, "2026-11-30T10:47:55.048701574Z", size, name.partition("/")[2], _volumes(machine, backup))
        for backup, size, name in its if name.startswith(f"{action.tenant}/")
    ]  # fmt: skip
    return ActionResult(changed=False, message=json.dumps(found))


def _volumes(machine: FakeMachine, backup: str) -> list[tuple[str, int]]:
    begin = name_of(f"{backup}/")
    return [(key.removeprefix(begin), int(size)) for key, size in machine.written.items() if key.startswith(begin)]


def _store(machine: FakeMachine, action: StoreBackup) -> None:
    if action.part:
        if action.volume not in machine.data:
            raise NotFound("volume.missing", "the data volume is not on the host")
        key = part_of(action.backup, action.part)
        machine.written.setdefault(key_of(key), machine.written.get(action.volume, ""))
        machine.written.setdefault(name_of(key), str(action.size_bytes))
        return
    if action.volume not in machine.volumes:
        raise NotFound("snapshot.missing", "the snapshot is not on the host")
    machine.written.setdefault(key_of(action.backup), machine.written[action.volume])
    machine.written.setdefault(password_of(action.backup), action.password)
    machine.written.setdefault(name_of(action.backup), f"{action.of_vm} {action.size_bytes} {action.vm_name}")


def _content(machine: FakeMachine, action: UsesRepository) -> str:
    key = key_of(part_of(action.backup, action.part))
    if key not in machine.written:
        raise NotFound("backup.missing", "the backup is not in its repository")
    if machine.written[password_of(action.backup)] != action.password:
        raise Fatal("backup.password", "the repository has another password")
    return machine.written[key]


def _fetch(machine: FakeMachine, action: FetchBackup) -> None:
    content = _content(machine, action)
    if action.image and action.image not in machine.images:
        raise Fatal("image.missing", "the base image is not on the host")
    machine.volumes.setdefault(action.volume, (action.vm, action.disk_bytes, action.image))
    machine.written.setdefault(action.volume, content)


def _fetch_volume(machine: FakeMachine, action: FetchVolume) -> None:
    content = _content(machine, action)
    machine.data.setdefault(action.volume, (action.volume_bytes, None))
    machine.written.setdefault(action.volume, content)


def _verify(machine: FakeMachine, action: VerifyBackup) -> None:
    if not action.given_up:
        _content(machine, action)


def _remove(machine: FakeMachine, action: RemoveBackup) -> None:
    keys = (key_of(action.backup), password_of(action.backup), name_of(action.backup))
    for key in [key for key in machine.written if key.partition("/")[0] in keys]:
        del machine.written[key]


HANDLERS: dict[type[HostAction], Callable[..., Any]] = {
    FindRepositories: _find,
    ListBackups: _list,
    StoreBackup: _store,
    FetchBackup: _fetch,
    FetchVolume: _fetch_volume,
    VerifyBackup: _verify,
    RemoveBackup: _remove,
}
