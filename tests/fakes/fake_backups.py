# SPDX-License-Identifier: Apache-2.0
"""Backups of disks on machines that live in memory: what was on a disk (``written``) is in its target as well."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.core.actions.backups import FetchBackup, RemoveBackup, StoreBackup, UsesRepository, VerifyBackup
from orchestrator.core.actions.host_actions import HostAction
from orchestrator.core.errors import Fatal, NotFound
from tests.fakes.fake_machine import FakeMachine


def key_of(backup_id: str) -> str:
    """Under which what it holds is in ``written``."""
    return f"backup: {backup_id}"


def password_of(backup_id: str) -> str:
    """Under which the password is, with which it was stored."""
    return f"password: {backup_id}"


def _store(machine: FakeMachine, action: StoreBackup) -> None:
    if action.volume not in machine.volumes:
        raise NotFound("snapshot.missing", "the snapshot is not on the host")
    machine.written.setdefault(key_of(action.backup), machine.written[action.volume])
    machine.written.setdefault(password_of(action.backup), action.password)


def _content(machine: FakeMachine, action: UsesRepository) -> str:
    if key_of(action.backup) not in machine.written:
        raise NotFound("backup.missing", "the backup is not in its repository")
    if machine.written[password_of(action.backup)] != action.password:
        raise Fatal("backup.password", "the repository has another password")
    return machine.written[key_of(action.backup)]


def _fetch(machine: FakeMachine, action: FetchBackup) -> None:
    content = _content(machine, action)
    machine.volumes.setdefault(action.volume, (action.vm, action.disk_bytes, ""))
    machine.written.setdefault(action.volume, content)


def _verify(machine: FakeMachine, action: VerifyBackup) -> None:
    if not action.given_up:
        _content(machine, action)


def _remove(machine: FakeMachine, action: RemoveBackup) -> None:
    machine.written.pop(key_of(action.backup), None)
    machine.written.pop(password_of(action.backup), None)


HANDLERS: dict[type[HostAction], Callable[..., None]] = {
    StoreBackup: _store,
    FetchBackup: _fetch,
    VerifyBackup: _verify,
    RemoveBackup: _remove,
}
