# SPDX-License-Identifier: Apache-2.0
"""VMs whose disk is what a backup holds: what is on it, on which image and how large, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.actions.backups import FetchBackup
from orchestrator.core.actions.host_actions import ActionResult
from orchestrator.core.errors import Conflict, InvalidInput, NotFound, VgpuctlError
from orchestrator.core.tenancy.quota import Limit
from orchestrator.core.units import GIB, MIB
from orchestrator.core.vms.vm import Vm
from orchestrator.services.messages import CreateVm
from tests.fakes import fake_actions, fake_backups
from tests.fakes.control_plane import T4_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.recount import miscounted
from tests.operations import backups as own
from tests.operations.suspending import delete, running


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    made = control_plane(tmp_path)
    own.with_backup(running(T4_HOST))(made)
    yield made
    made.store.close()


def made(plane: ControlPlane, request: CreateVm) -> Vm:
    plane.services.vms.create(request)
    plane.engine.drain()
    return plane.services.vms.get("default", request.name)


def test_its_disk_is_what_the_backup_holds_on_the_image_of_its_vm_which_may_be_gone(plane: ControlPlane) -> None:
    machine, vm, backup = plane.machine(T4_HOST), plane.services.vms.get("default", "train"), own.the_backup(plane)
    assert backup.image == vm.spec.image
    then, image = machine.written[vm.volume], machine.volumes[vm.volume][2]
    delete(plane)
    plane.engine.drain()
    request = own.copy_of(plane, disk_bytes=2 * GIB)
    twin = made(plane, request)
    assert (twin.state, twin.spec.disk_bytes, twin.spec.from_backup) == ("running", 2 * GIB, backup.id)
    assert machine.volumes[twin.volume] == (twin.id, 2 * GIB, image)
    assert machine.written[twin.volume] == then
    with plane.store.read() as tx:
        assert not list(miscounted(tx))
        assert tx.quotas.used("default")["disk"] == 2 * GIB // MIB
    assert plane.services.vms.create(request).existing, "asked for again"
    other = replace(request, from_backup="f" * 36)
    with pytest.raises(Conflict) as another:
        plane.services.vms.create(other)
    assert another.value.code == "vm.exists"


def test_it_takes_a_place_of_copies_and_none_of_its_host(plane: ControlPlane) -> None:
    for request in (own.copy_of(plane), create_vm("plain", profile="GRID T4-2Q")):
        plane.services.vms.create(request)
    with plane.store.read() as tx:
        assert [run.line for run in tx.operations.due()] == [f"copies on {T4_HOST}", T4_HOST]


def test_a_disk_that_is_left_to_the_profile_has_room_for_it(plane: ControlPlane) -> None:
    with plane.store.begin() as tx:
        tx.backups.remove((backup := own.the_backup(plane)).id)
        tx.backups.add(replace(backup, size_bytes=100 * GIB))
    assert made(plane, own.copy_of(plane, disk_bytes=0)).spec.disk_bytes == 100 * GIB


def test_a_plan_tells_of_it_and_of_no_password(plane: ControlPlane) -> None:
    planned = plane.services.vms.plan(own.copy_of(plane))
    (fetched,) = (action for action in planned.actions if isinstance(action, FetchBackup))
    assert (fetched.backup, fetched.password) == (own.the_backup(plane).id, "")


def test_an_image_that_was_removed_from_the_host_is_sent_again(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = fake_actions.perform_on

    def removed(machine: Any, action: Any) -> ActionResult:
        if isinstance(action, FetchBackup) and not sent:
            machine.images.remove(action.image)
            sent.append(action.image)
        return original(machine, action)

    sent: list[str] = []
    monkeypatch.setattr("tests.fakes.fake_host.perform_on", removed)
    assert made(plane, own.copy_of(plane)).state == "running"
    assert sent


def test_a_backup_that_its_target_has_no_more_leaves_nothing(plane: ControlPlane) -> None:
    machine = plane.machine(T4_HOST)
    del machine.written[fake_backups.key_of(own.the_backup(plane).id)]
    before = set(machine.volumes)
    operation = str(plane.services.vms.create(own.copy_of(plane)).operation)
    plane.engine.drain()
    ended = plane.services.operations.get(operation)
    assert (ended.state, (ended.error or {})["code"]) == ("undone", "backup.missing")
    assert set(machine.volumes) == before
    with pytest.raises(NotFound):
        plane.services.vms.get("default", "twin")
    with plane.store.read() as tx:
        assert not list(miscounted(tx))


def test_one_that_is_read_is_not_deleted_and_one_that_is_deleted_is_not_read(plane: ControlPlane) -> None:
    request = own.copy_of(plane)
    plane.services.vms.create(request)
    with pytest.raises(Conflict) as read:
        own.remove(plane)
    assert (read.value.code, "create vm" in read.value.message) == ("backup.in_use", True)
    plane.engine.drain()
    own.remove(plane)
    with pytest.raises(Conflict) as going:
        plane.services.vms.create(replace(request, name="third"))
    assert (going.value.code, "delete backup" in going.value.message) == ("backup.in_use", True)


def test_what_is_asked_for_wrongly_is_refused_before_it_is_begun(plane: ControlPlane) -> None:
    backup = own.the_backup(plane)
    plane.services.tenancy.tenants.create("others")

    def refused(code: str, family: type[VgpuctlError], **more: Any) -> None:
        with pytest.raises(family) as raised:
            plane.services.vms.create(replace(own.copy_of(plane), **more))
        assert (raised.value.code, bool(raised.value.hint)) == (code, True)

    refused("disk.too_small", InvalidInput, disk_bytes=backup.size_bytes - MIB)
    refused("backup.unknown", NotFound, from_backup="ffffffff")
    refused("backup.unknown", NotFound, tenant="others")
    refused("disk.two_sources", InvalidInput, from_snapshot="train/before")
    with plane.store.begin() as tx:
        tx.quotas.put(Limit(tenant="default", resource="disk", amount=backup.size_bytes // MIB))
    refused("quota.exceeded", VgpuctlError)
    with plane.store.begin() as tx:
        tx.backups.remove(backup.id)
        tx.backups.add(replace(backup, taken_of=None))
    refused("backup.unfinished", Conflict)
