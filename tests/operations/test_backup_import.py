# SPDX-License-Identifier: Apache-2.0
"""Backups that a target has and the database has not: whose they become, and what is not believed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.actions.backups import ListBackups
from orchestrator.core.actions.host_actions import ActionResult
from orchestrator.core.errors import NoCapacity, NotFound
from orchestrator.core.operation import Operation
from orchestrator.core.vms.backup import Backup
from tests.fakes import fake_actions, fake_backups
from tests.fakes.control_plane import T4_HOST, ControlPlane, control_plane, create_vm
from tests.operations import backups as own
from tests.operations.suspending import delete, running


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """Its VM is gone, and the database lost the backup; the target has it."""
    made = control_plane(tmp_path)
    own.with_backup(running(T4_HOST))(made)
    yield made
    made.store.close()


def lost(plane: ControlPlane) -> Backup:
    backup = own.the_backup(plane)
    delete(plane)
    plane.engine.drain()
    with plane.store.begin() as tx:
        tx.backups.remove(backup.id)
    return backup


def imported(plane: ControlPlane, tenant: str = "default", of_tenant: str = "default") -> Operation:
    operation = plane.services.backups.bring_in("nas", tenant, of_tenant).operation
    plane.engine.drain()
    return plane.services.operations.get(str(operation))


def said(operation: Operation) -> str:
    return operation.steps[0].message


def test_what_was_lost_is_there_again_once_and_goes_to_a_new_vm(plane: ControlPlane) -> None:
    before = lost(plane)
    machine = plane.machine(T4_HOST)
    assert said(imported(plane)) == "1 backups of 1 VMs"
    assert said(imported(plane)) == "0 backups of 0 VMs"
    backup = own.the_backup(plane)
    assert replace(backup, created_at=0) == replace(before, created_at=0, added_bytes=None, policy=None)
    assert backup.created_at == datetime(2026, 11, 30, 10, 47, 55, 48701, tzinfo=UTC).timestamp()
    plane.services.vms.create(create_vm("again", start=False))
    plane.engine.drain()
    volume = plane.services.vms.get("default", "again").volume
    plane.services.backups.restore("default", backup.id, "again")
    plane.engine.drain()
    assert machine.written[volume] == machine.written[fake_backups.key_of(backup.id)]
    own.verify(plane)
    plane.engine.drain()
    assert own.the_backup(plane).verified_at is not None


def test_they_become_those_of_the_tenant_that_is_named_and_of_no_other(plane: ControlPlane) -> None:
    plane.services.tenancy.tenants.create("lab")
    assert said(imported(plane, "lab")).startswith("0 "), "it is known, and its VM is here"
    with plane.store.begin() as tx:
        tx.backups.remove(own.the_backup(plane).id)
    assert said(imported(plane, "lab")).startswith("0 "), "its VM is another tenant's"
    delete(plane)
    plane.engine.drain()
    assert said(imported(plane, "lab", "lab")).startswith("0 "), "it was made for another one"
    assert said(imported(plane, "lab")).startswith("1 ")
    assert own.the_backup(plane).tenant == "lab"
    with pytest.raises(NotFound) as unknown:
        plane.services.backups.bring_in("nas", "nobody", "default")
    assert unknown.value.code == "tenant.unknown"
    with pytest.raises(NoCapacity) as away:
        plane.services.backups.bring_in("nas", "lab", "default", "elsewhere")
    assert away.value.code == "backup.no_host"


def test_a_repository_that_cannot_be_opened_is_told_and_the_others_come(plane: ControlPlane) -> None:
    backup, written = lost(plane), plane.machine(T4_HOST).written
    other, vm = "1" * 36, "2" * 36
    written[fake_backups.key_of(other)] = "of another site"
    written[fake_backups.password_of(other)] = "nobody's"
    written[fake_backups.name_of(other)] = f"{vm} {backup.size_bytes} default/train"
    assert said(imported(plane)) == f"1 backups of 1 VMs; not opened: {vm} (backup.password)"
    assert own.the_backup(plane).id == backup.id


@pytest.mark.parametrize(
    "found",
    ["none", [["1" * 36, "2026-11-30T10:47:55Z", 2**30]], [["../../x", "2026-11-30T10:47:55Z", 2**30, "train"]],
     [["1" * 36, "yesterday", 2**30, "train"]], [["1" * 36, "2026-11-30T10:47:55Z", 2**90, "train"]],
     [["1" * 36, "2026-11-30T10:47:55Z", 2**30, "\x1b[2J"]]],
)  # fmt: skip
def test_a_list_that_is_none_makes_no_record(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, found: Any) -> None:
    lost(plane)
    original = fake_actions.perform_on

    def lies(machine: Any, action: Any) -> ActionResult:
        if isinstance(action, ListBackups):
            return ActionResult(changed=False, message=json.dumps(found))
        return original(machine, action)

    monkeypatch.setattr("tests.fakes.fake_host.perform_on", lies)
    ended = imported(plane)
    assert (ended.error or {})["code"] == "agent.answer_invalid"
    assert plane.services.backups.list(None) == ()
