# SPDX-License-Identifier: Apache-2.0
"""What backups hold and hold up, what is refused about them, that they outlive their VM, and that a VM has its disk
back by them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.actions.backups import RemoveBackup, StoreBackup, VerifyBackup
from orchestrator.core.actions.host_actions import ActionResult
from orchestrator.core.errors import Conflict, InvalidInput, NotFound
from orchestrator.core.vms.backup import SHORTEST_ID, repository_password
from orchestrator.core.vms.vm import Vm
from orchestrator.services.vms import backups as service
from tests.fakes import fake_actions, fake_backups
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.fake_data_volumes import guest_agent_of
from tests.operations import backups as own
from tests.operations.suspending import delete, running


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    made = control_plane(tmp_path)
    own.with_backup(running(T4_HOST))(made)
    yield made
    made.store.close()


def vm_of(plane: ControlPlane, name: str = "train") -> Vm:
    return plane.services.vms.get("default", name)


def do(plane: ControlPlane, begin: Callable[[ControlPlane], object]) -> None:
    begin(plane)
    plane.engine.drain()


def claimed_disk(plane: ControlPlane) -> int:
    with plane.store.read() as tx:
        (claim,) = tx.claims.list()
    return claim.disk_bytes


def secret_of(plane: ControlPlane) -> str:
    return plane.services.backup_targets.secret("nas")


def test_one_holds_a_snapshot_while_it_is_made_and_nothing_afterwards(plane: ControlPlane) -> None:
    vm, backup = vm_of(plane), own.the_backup(plane)
    assert (backup.vm, backup.vm_name, backup.taken_of) == (vm.id, "train", "running")
    assert vm.snapshots == ()
    assert (vm.state, vm.wanted) == ("running", "running")
    assert set(plane.machine(T4_HOST).volumes) == {vm.volume}
    assert claimed_disk(plane) == vm.spec.disk_bytes


def test_one_says_how_its_snapshot_was_taken(plane: ControlPlane) -> None:
    assert own.the_backup(plane).quiesced == "no guest agent"
    plane.machine(T4_HOST).written[guest_agent_of(vm_of(plane).id)] = "yes"
    plane.services.backups.run("default", "train", "nas")
    plane.engine.drain()
    assert [backup.quiesced for backup in plane.services.backups.list(("default",))] == ["no guest agent", "yes"]


def test_the_password_is_in_no_journal_and_not_in_the_clear_in_the_database(
    plane: ControlPlane, tmp_path: Path
) -> None:
    backup, secret = own.the_backup(plane), secret_of(plane)
    password = plane.machine(T4_HOST).written[fake_backups.password_of(backup.id)]
    assert password == repository_password(secret, backup.vm)
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert backup.id.encode() in stored
    assert secret.encode() not in stored
    assert password.encode() not in stored


def test_the_disk_of_a_stopped_vm_is_again_as_it_was(plane: ControlPlane) -> None:
    machine, vm = plane.machine(T4_HOST), vm_of(plane)
    with pytest.raises(Conflict) as refused:
        own.restore(plane)
    assert refused.value.code == "vm.busy"
    before = machine.written[vm.volume]
    machine.written[vm.volume] = "written since"
    do(plane, lambda p: p.services.vms.stop("default", "train"))
    own.restore(plane)
    assert claimed_disk(plane) == 3 * vm.spec.disk_bytes, "its own, what is fetched, what is put in its place"
    plane.engine.drain()
    assert claimed_disk(plane) == vm.spec.disk_bytes
    assert machine.written[vm.volume] == before
    assert vm_of(plane).state == "stopped"
    assert vm_of(plane).snapshots == ()
    assert set(machine.volumes) == {vm.volume}
    do(plane, lambda p: p.services.vms.start("default", "train"))
    assert vm_of(plane).state == "running"


def test_it_outlives_its_vm_and_goes_to_another_one_of_the_tenant(plane: ControlPlane) -> None:
    machine, before = plane.machine(T4_HOST), plane.machine(T4_HOST).written[vm_of(plane).volume]
    do(plane, delete)
    backup = own.the_backup(plane)
    plane.services.vms.create(create_vm("again", start=False))
    plane.engine.drain()
    again = vm_of(plane, "again")
    machine.written[again.volume] = "its own"
    do(plane, lambda p: p.services.backups.restore("default", backup.id[:8], "again"))
    assert machine.written[again.volume] == before
    do(plane, own.remove)
    assert plane.services.backups.list(None) == ()
    assert fake_backups.key_of(backup.id) not in machine.written


def test_one_that_is_not_there_any_more_leaves_the_disk_as_it_is(plane: ControlPlane) -> None:
    machine, vm = plane.machine(T4_HOST), vm_of(plane)
    do(plane, lambda p: p.services.vms.stop("default", "train"))
    del machine.written[fake_backups.key_of(own.the_backup(plane).id)]
    operation = own.restore(plane)
    plane.engine.drain()
    ended = plane.services.operations.get(str(operation))
    assert (ended.state, (ended.error or {})["code"]) == ("undone", "backup.missing")
    assert vm_of(plane).state == "stopped"
    assert set(machine.volumes) == {vm.volume}


def test_a_backup_that_takes_long_is_asked_for_again_and_can_be_cancelled(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    original = fake_actions.perform_on

    def slow(machine: Any, action: Any) -> ActionResult:
        if isinstance(action, StoreBackup) and len(looks) < 3:
            looks.append(len(looks))
            return ActionResult(changed=True, unfinished=True)
        return original(machine, action)

    monkeypatch.setattr("tests.fakes.fake_host.perform_on", slow)
    do(plane, own.run)
    assert len(looks) == 3
    assert len(plane.services.backups.list(None)) == 2
    looks.clear()
    operation = str(own.run(plane))

    def cancelled(machine: Any, action: Any) -> ActionResult:
        if isinstance(action, StoreBackup):
            plane.services.operations.cancel(operation)
            return ActionResult(changed=True, unfinished=True)
        return original(machine, action)

    monkeypatch.setattr("tests.fakes.fake_host.perform_on", cancelled)
    plane.engine.drain()
    ended = plane.services.operations.get(operation)
    assert (ended.state, (ended.error or {})["code"]) == ("undone", "operation.cancelled")
    assert len(plane.services.backups.list(None)) == 2
    assert (vm_of(plane).state, vm_of(plane).snapshots) == ("running", ())


def test_verifying_that_is_cancelled_is_ended_on_the_host(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    operation = str(own.verify(plane))
    original = fake_actions.perform_on

    def cancelled(machine: Any, action: Any) -> ActionResult:
        if isinstance(action, VerifyBackup):
            asked.append(action.given_up)
            if not action.given_up:
                plane.services.operations.cancel(operation)
                return ActionResult(changed=True, unfinished=True)
        return original(machine, action)

    monkeypatch.setattr("tests.fakes.fake_host.perform_on", cancelled)
    plane.engine.drain()
    assert (plane.services.operations.get(operation).state, asked) == ("undone", [False, True])


def test_what_is_not_there_or_is_there_already_is_refused(plane: ControlPlane) -> None:
    with pytest.raises(NotFound) as unknown:
        plane.services.backups.verify("default", "ffffffff")
    assert unknown.value.code == "backup.unknown"
    with pytest.raises(NotFound) as elsewhere:
        plane.services.backups.run("default", "train", "other")
    assert elsewhere.value.code == "backup.target_unknown"
    with pytest.raises(Conflict) as twice:
        plane.services.backup_targets.create("nas")
    assert twice.value.code == "backup.target_exists"
    with pytest.raises(Conflict) as held:
        plane.services.backup_targets.delete("nas")
    assert held.value.code == "backup.target_in_use"


@pytest.mark.parametrize("code", ["backup.no_target", "backup.no_restic", "backup.password"])
def test_where_the_repository_cannot_be_opened_nothing_is_left(
    plane: ControlPlane, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor can anything be removed there, and the operation does not get stuck by that."""
    original = fake_actions.perform_on

    def closed(machine: Any, action: Any) -> ActionResult:
        if isinstance(action, StoreBackup | RemoveBackup):
            raise NotFound(code, "it cannot be opened")
        return original(machine, action)

    monkeypatch.setattr("tests.fakes.fake_host.perform_on", closed)
    operation = str(own.run(plane))
    plane.engine.drain()
    ended = plane.services.operations.get(operation)
    assert (ended.state, (ended.error or {})["code"]) == ("undone", code)
    assert len(plane.services.backups.list(None)) == 1
    assert vm_of(plane).snapshots == ()


def test_one_whose_vm_was_deleted_before_it_was_made_can_be_deleted(plane: ControlPlane) -> None:
    backup = own.the_backup(plane)
    do(plane, delete)
    with plane.store.begin() as tx:
        tx.backups.remove(backup.id)
        tx.backups.add(replace(backup, taken_of=None, added_bytes=None))
    with pytest.raises(Conflict) as unfinished:
        own.verify(plane)
    assert unfinished.value.code == "backup.unfinished"
    do(plane, own.remove)
    assert plane.services.backups.list(None) == ()


def test_a_host_whose_target_is_another_directory_does_not_end_the_record(plane: ControlPlane) -> None:
    """Made on a disk of T4_HOST's own, which does not answer now; where that is gone for good there is nothing left."""
    backup = own.the_backup(plane)
    plane.add_host(L40S_HOST)
    with plane.store.begin() as tx:
        made_on = tx.hosts.get(T4_HOST)
        tx.hosts.update(replace(made_on, state="unreachable", state_reason="no answer"))
    operation = own.remove(plane)
    plane.engine.drain()
    ended = plane.services.operations.get(str(operation))
    assert (ended.state, (ended.error or {})["code"]) == ("undone", "backup.elsewhere")
    assert own.the_backup(plane) == backup
    with plane.store.begin() as tx:
        tx.hosts.update(made_on)
    do(plane, own.remove)
    assert plane.services.backups.list(None) == ()
    assert fake_backups.key_of(backup.id) not in plane.machine(T4_HOST).written


def test_where_the_host_that_made_one_is_gone_that_of_its_vm_verifies_it(plane: ControlPlane) -> None:
    """Another host need not have mounted the target."""
    plane.add_host(L40S_HOST)
    backup = own.the_backup(plane)
    with plane.store.begin() as tx:
        tx.backups.remove(backup.id)
        tx.backups.add(replace(backup, host="removed"))
    operation = own.verify(plane)
    plane.engine.drain()
    assert plane.services.operations.get(str(operation)).state == "done"
    assert own.the_backup(plane).verified_at is not None


def test_a_target_that_was_lost_goes_on_with_its_secret(plane: ControlPlane) -> None:
    """Its repositories have passwords of that."""
    first, secret = own.the_backup(plane), secret_of(plane)
    before = plane.machine(T4_HOST).written[fake_backups.password_of(first.id)]
    with plane.store.begin() as tx:
        tx.backups.remove(first.id)
    plane.services.backup_targets.delete("nas")
    for wrong in ("", secret[1:], secret.upper(), f"{secret}0"):
        with pytest.raises(InvalidInput) as refused:
            plane.services.backup_targets.create("nas", wrong)
        assert refused.value.code == "backup.secret_invalid"
        assert not wrong or wrong not in str(refused.value)
    plane.services.backup_targets.create("nas", secret)
    do(plane, own.run)
    assert plane.machine(T4_HOST).written[fake_backups.password_of(own.the_backup(plane).id)] == before


def test_what_a_target_may_be_written_in_a_second_is_told_to_hosts(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    original = fake_actions.perform_on

    def heard(machine: Any, action: Any) -> ActionResult:
        if isinstance(action, StoreBackup):
            told.append(action.max_bytes_per_s)
        return original(machine, action)

    monkeypatch.setattr("tests.fakes.fake_host.perform_on", heard)
    for limit in (0, 50 * 2**20, 0):
        assert plane.services.backup_targets.change("nas", limit).max_bytes_per_s == limit
        do(plane, own.run)
    assert told == [0, 50 * 2**20, 0]
    with pytest.raises(InvalidInput) as slow:
        plane.services.backup_targets.change("nas", 1)
    assert slow.value.code == "backup.limit_invalid"


def test_one_is_shown_by_how_its_id_begins_to_its_tenant_alone(plane: ControlPlane) -> None:
    plane.services.tenancy.tenants.create("lab")
    backup = own.the_backup(plane)
    assert plane.services.backups.get("default", backup.id[:8]) == backup
    with pytest.raises(NotFound) as hidden:
        plane.services.backups.get("lab", backup.id)
    assert hidden.value.code == "backup.unknown"


def test_one_that_is_named_by_too_little_of_its_id_is_told_how_much_will_do(plane: ControlPlane) -> None:
    backup = own.the_backup(plane)
    assert plane.services.backups.get("default", backup.id[:SHORTEST_ID]) == backup
    with pytest.raises(NotFound) as short:
        plane.services.backups.get("default", backup.id[: SHORTEST_ID - 1])
    assert str(short.value.hint).startswith(f"write at least {SHORTEST_ID} characters of its id; ")
    with plane.store.begin() as tx:
        tx.backups.add(replace(backup, id=backup.id[:-1] + "f"))
    with pytest.raises(NotFound, match="the ids of several backups begin with"):
        plane.services.backups.get("default", backup.id[:8])


def test_of_several_targets_one_has_to_be_named(plane: ControlPlane) -> None:
    plane.services.backup_targets.create("other")
    with pytest.raises(InvalidInput) as which:
        own.run(plane)
    assert (which.value.code, "nas" in (which.value.hint or "")) == ("backup.which_target", True)
    plane.services.backup_targets.delete("other")
    own.run(plane)


def test_what_is_unfinished_one_too_many_or_too_large_is_refused(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = own.the_backup(plane)
    monkeypatch.setattr(service, "MAX_OF_TENANT", 1)
    with pytest.raises(Conflict) as many:
        own.run(plane)
    assert many.value.code == "backup.too_many"
    monkeypatch.undo()
    own.run(plane)
    unfinished = plane.services.backups.list(None)[-1]
    with pytest.raises(Conflict) as early:
        plane.services.backups.delete("default", unfinished.id)
    assert early.value.code == "backup.unfinished"
    plane.engine.drain()
    do(plane, lambda p: p.services.vms.stop("default", "train"))
    with plane.store.begin() as tx:
        tx.backups.remove(backup.id)
        tx.backups.add(replace(backup, size_bytes=2 * backup.size_bytes))
    with pytest.raises(Conflict) as larger:
        plane.services.backups.restore("default", backup.id, "train")
    assert larger.value.code == "backup.larger"


def test_another_tenant_has_none_and_one_that_has_some_stays(plane: ControlPlane) -> None:
    plane.services.tenancy.tenants.create("lab")
    backup = own.the_backup(plane)
    with pytest.raises(NotFound) as hidden:
        plane.services.backups.delete("lab", backup.id)
    assert hidden.value.code == "backup.unknown"
    assert plane.services.backups.list(("lab",)) == ()
    with plane.store.begin() as tx:
        tx.backups.add(replace(backup, id="1" * 36, tenant="lab"))
    with pytest.raises(Conflict) as refused:
        plane.services.tenancy.tenants.delete("lab")
    assert refused.value.code == "tenant.in_use"
