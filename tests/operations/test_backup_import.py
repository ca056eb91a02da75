# SPDX-License-Identifier: Apache-2.0
"""Backups that a target has and the database has not: whose they become, and what is not believed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
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
    unknown = replace(before, added_bytes=None, policy=None, quiesced=None, image=None)
    assert replace(backup, created_at=0) == replace(unknown, created_at=0)
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
    twin = own.copy_of(plane)
    plane.services.vms.create(twin)
    plane.engine.drain()
    assert machine.written[plane.services.vms.get("default", twin.name).volume] == machine.written[volume]


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


def _answers(monkeypatch: pytest.MonkeyPatch, message: str, meanwhile: Callable[[], object] = lambda: None) -> None:
    """What the host says is in each repository."""
    original = fake_actions.perform_on

    def lies(machine: Any, action: Any) -> ActionResult:
        if not isinstance(action, ListBackups):
            return original(machine, action)
        meanwhile()
        return ActionResult(changed=False, message=message)

    monkeypatch.setattr("tests.fakes.fake_host.perform_on", lies)


@pytest.mark.parametrize("message", ["none", '"none"', "[" * 100_000, "{}"], ids=["no JSON", "text", "deep", "object"])
def test_an_answer_that_is_no_list_makes_no_record(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    lost(plane)
    _answers(monkeypatch, message)
    assert (imported(plane).error or {})["code"] == "agent.answer_invalid"
    assert plane.services.backups.list(None) == ()


_GOOD = ["1" * 36, "2026-11-30T10:47:55Z", 2**30, "train"]


@pytest.mark.parametrize(
    "strange",
    [_GOOD[:3], "none", None, {}, ["../../x", *_GOOD[1:]], [7, *_GOOD[1:]],
     *([_GOOD[0], made, *_GOOD[2:]] for made in ("yesterday", 5, "0001-01-01T00:00:00+14:00", "1969-12-31T00:00:00Z")),
     *([*_GOOD[:2], size, "train"] for size in (2**90, -1, float("nan"), "1", None)), [*_GOOD[:3], "\x1b[2J"]],
    ids=ascii,
)  # fmt: skip
def test_what_is_no_backup_is_told_and_the_others_come(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, strange: Any
) -> None:
    """A host that had a repository's password may have put it there."""
    lost(plane)
    _answers(monkeypatch, json.dumps([strange, _GOOD, _GOOD]))
    assert said(imported(plane)) == "1 backups of 1 VMs; no backups that could be: 1"
    assert [backup.id for backup in plane.services.backups.list(None)] == [_GOOD[0]]


def test_one_that_is_removed_while_its_target_is_read_does_not_come_back(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = own.the_backup(plane)
    delete(plane)
    plane.engine.drain()

    def removed() -> None:
        with plane.store.begin() as tx:
            tx.backups.remove(backup.id)

    _answers(monkeypatch, json.dumps([[backup.id, *_GOOD[1:]]]), removed)
    assert said(imported(plane)).startswith("0 ")
    assert plane.services.backups.list(None) == ()


def test_of_more_than_a_tenant_may_have_the_newest_come(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    lost(plane)
    monkeypatch.setattr("orchestrator.operations.steps.backup_import.MAX_OF_TENANT", 2)
    found = [[str(day) * 36, f"2026-11-0{day}T10:47:55Z", 2**30, "train"] for day in (2, 4, 1, 3)]
    _answers(monkeypatch, json.dumps(found))
    assert said(imported(plane)).startswith("2 ")
    assert said(imported(plane)).startswith("0 ")
    assert [backup.id[0] for backup in plane.services.backups.list(None)] == ["3", "4"]
