# SPDX-License-Identifier: Apache-2.0
"""What policies of backups begin by themselves: once in a period, in their hours, bounded, and never twice; what they
remove, and what is told of a VM that they cannot back up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.actions.backups import RemoveBackup, StoreBackup, VerifyBackup
from orchestrator.core.actions.host_actions import ActionResult
from orchestrator.core.errors import Conflict, Fatal, InvalidInput, NotFound, Unknown, VgpuctlError
from orchestrator.core.vms.backup import Backup
from orchestrator.core.vms.backup_policy import MAX_ON_HOST, RETRY_S, VmBackupStanding
from orchestrator.core.vms.lease import DAY_S
from orchestrator.reconcile.backups import BackupKeeper
from tests.fakes import fake_actions
from tests.fakes.control_plane import T4_HOST, ControlPlane, control_plane, create_vm

HOUR = 3600.0


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A VM, and a target that nothing is in."""
    made = control_plane(tmp_path)
    made.add_host(T4_HOST)
    made.services.vms.create(create_vm())
    made.engine.drain()
    made.services.backup_targets.create("nas")
    yield made
    made.reconciler.close()
    made.store.close()


def keeper(plane: ControlPlane) -> BackupKeeper:
    return BackupKeeper(backups=plane.services.backups, time=plane.time, leads=lambda: True)


def policy(plane: ControlPlane, *vms: str, **wanted: Any) -> None:
    plane.services.backup_policies.create("default", "nightly", None, vms, wanted)


def later(plane: ControlPlane, seconds: float) -> None:
    """So much later, with all that is due until nothing more begins. A server runs and looks at its clock meanwhile."""
    plane.world.clock.sleep(seconds)
    plane.time.look()
    for _ in range(8):
        keeper(plane).round()
        plane.engine.drain()


def backups(plane: ControlPlane) -> tuple[Backup, ...]:
    return plane.services.backups.list(None)


def standing(plane: ControlPlane) -> VmBackupStanding:
    (its,) = plane.services.backup_policies.get("default", "nightly").standings
    return its


def error_of(plane: ControlPlane) -> object:
    return (standing(plane).error or {}).get("message")


def refusing(
    monkeypatch: pytest.MonkeyPatch,
    kind: type[Any] | tuple[type[Any], ...],
    code: str,
    family: type[VgpuctlError] = Fatal,
) -> None:
    original = fake_actions.perform_on

    def refuse(machine: Any, action: Any) -> ActionResult:
        if isinstance(action, kind) and not getattr(action, "given_up", False):
            raise family(code, "it went wrong")
        return original(machine, action)

    monkeypatch.setattr("tests.fakes.fake_host.perform_on", refuse)


def test_a_vm_is_backed_up_once_in_each_period(plane: ControlPlane) -> None:
    policy(plane)
    later(plane, HOUR)
    (first,) = backups(plane)
    assert (first.policy, first.target, first.taken_of) == ("nightly", "nas", "running")
    later(plane, HOUR)
    assert backups(plane) == (first,)
    later(plane, DAY_S)
    assert len(backups(plane)) == 2
    assert (standing(plane).state, standing(plane).backups) == ("good", 2)


def test_what_a_pause_has_missed_is_made_up_for_by_one(plane: ControlPlane) -> None:
    policy(plane)
    later(plane, HOUR)
    later(plane, 10 * DAY_S)
    assert len(backups(plane)) == 2


def test_it_begins_in_its_hours_alone(plane: ControlPlane) -> None:
    policy(plane, window="01:00-03:00")
    now = plane.time.now()
    opens = plane.services.backup_policies.get("default", "nightly").standings[0].next_at
    if opens > now:
        later(plane, opens - now - 60)
        assert backups(plane) == ()
    later(plane, 2 * HOUR)
    (made,) = backups(plane)
    assert 3600 <= made.created_at % DAY_S < 3 * 3600


def test_two_controllers_begin_one(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have seen that it is due."""
    policy(plane)
    plane.world.clock.sleep(HOUR)
    plane.time.look()
    other, read = keeper(plane), list[Any]()
    original = BackupKeeper._advance

    def beside(self: BackupKeeper, due: Any, now: float) -> bool:
        if not read:
            read.append(due)
            other.round()
            plane.engine.drain()
        return original(self, due, now)

    monkeypatch.setattr(BackupKeeper, "_advance", beside)
    keeper(plane).round()
    plane.engine.drain()
    assert len(backups(plane)) == 1


def test_a_controller_that_does_not_lead_begins_nothing(plane: ControlPlane) -> None:
    policy(plane)
    plane.world.clock.sleep(HOUR)
    BackupKeeper(backups=plane.services.backups, time=plane.time, leads=lambda: False).round()
    assert backups(plane) == ()


def test_no_more_than_some_at_once_on_a_host(plane: ControlPlane) -> None:
    for number in range(MAX_ON_HOST + 1):
        plane.services.vms.create(create_vm(f"more{number}", start=False))
    plane.engine.drain()
    policy(plane)
    plane.world.clock.sleep(2 * HOUR)
    plane.time.look()
    for _ in range(3):
        keeper(plane).round()
    assert len(backups(plane)) == MAX_ON_HOST
    later(plane, 60)
    assert len(backups(plane)) == MAX_ON_HOST + 2


def test_a_policy_of_named_vms_is_about_them_alone(plane: ControlPlane) -> None:
    plane.services.vms.create(create_vm("other", start=False))
    plane.engine.drain()
    policy(plane, "other")
    later(plane, HOUR)
    assert [backup.vm_name for backup in backups(plane)] == ["other"]
    plane.services.backup_policies.change("default", "nightly", {"vms": []})
    later(plane, 60)
    assert sorted(backup.vm_name for backup in backups(plane)) == ["other", "train"]


def test_it_removes_its_own_that_it_does_not_keep(plane: ControlPlane) -> None:
    plane.services.backups.run("default", "train", None)
    plane.engine.drain()
    (by_hand,) = backups(plane)
    policy(plane, keep_daily=2, keep_weekly=0, keep_monthly=0)
    for _ in range(4):
        later(plane, DAY_S)
    assert [backup.policy for backup in backups(plane)] == [None, "nightly", "nightly"]
    assert backups(plane)[0].id == by_hand.id
    assert len([one for one in plane.machine(T4_HOST).written if one.startswith("backup: ")]) == 3


def test_a_removal_that_is_stuck_keeps_no_backup_from_being_made(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where what is mounted there hangs."""
    policy(plane, keep_daily=1, keep_weekly=0, keep_monthly=0)
    later(plane, DAY_S)
    refusing(monkeypatch, RemoveBackup, "backup.hung", Unknown)
    later(plane, DAY_S)
    for _ in range(2):
        later(plane, DAY_S)
    assert (len(backups(plane)), standing(plane).state) == (4, "failed")
    assert "could not remove: 3" in str(error_of(plane))
    monkeypatch.undo()
    stuck = [one for one in plane.services.operations.list(limit=99) if one.state == "stuck"]
    assert len(stuck) == 3, "one of each"
    for each in stuck:
        plane.services.operations.retry(each.id)
    plane.engine.drain()
    later(plane, DAY_S)
    assert (len(backups(plane)), standing(plane).state) == (1, "good")


def test_what_is_stuck_otherwise_is_told_and_begun_no_more(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy(plane)
    refusing(monkeypatch, (StoreBackup, RemoveBackup), "backup.hung", Unknown)
    for _ in range(2):
        later(plane, HOUR)
    (stuck,) = (one for one in plane.services.operations.list(limit=99, kind="back_up_vm") if one.state == "stuck")
    assert standing(plane).state == "failed"
    assert error_of(plane) == f"operation {stuck.id} is stuck: 'vgpuctl operation show {stuck.id}' tells why"


def test_one_that_fails_is_tried_again_after_an_hour(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    policy(plane)
    refusing(monkeypatch, StoreBackup, "backup.no_target")
    later(plane, HOUR)

    def tries() -> int:
        return plane.services.operations.counts().get(("back_up_vm", "undone"), 0)

    assert tries() == 1
    later(plane, RETRY_S / 2)
    assert tries() == 1
    later(plane, RETRY_S / 2)
    assert tries() == 2


def test_a_vm_that_cannot_be_backed_up_is_told_of(plane: ControlPlane) -> None:
    with plane.store.begin() as tx:
        vm = tx.vms.list(tenant="default")[0]
        tx.vms.update(replace(vm, spec=replace(vm.spec, pool="fast")))
    policy(plane)
    later(plane, HOUR)
    its = standing(plane)
    assert (its.state, its.backups, its.last_at) == ("failed", 0, None)
    assert "pool" in str(its.error)


def test_one_that_something_works_on_is_begun_later_and_nothing_is_said(plane: ControlPlane) -> None:
    policy(plane)
    plane.world.clock.sleep(HOUR)
    plane.time.look()
    plane.services.vms.stop("default", "train")
    keeper(plane).round()
    assert (backups(plane), error_of(plane)) == ((), None)
    plane.engine.drain()
    later(plane, 60)
    assert [backup.taken_of for backup in backups(plane)] == ["stopped"]


def test_where_none_is_made_for_long_it_is_overdue(plane: ControlPlane) -> None:
    policy(plane)
    later(plane, HOUR)
    assert standing(plane).state == "good"
    with plane.store.begin() as tx:
        tx.hosts.update(replace(tx.hosts.get(T4_HOST), state="unreachable", state_reason="no answer"))
    later(plane, 1.5 * DAY_S)
    assert standing(plane).state == "good"
    later(plane, DAY_S)
    assert (standing(plane).state, error_of(plane)) == ("overdue", None)


def test_the_newest_is_verified_as_often_as_the_policy_says(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy(plane, verify_every_s=7 * DAY_S)
    later(plane, HOUR)
    (first,) = backups(plane)
    assert first.verified_at is not None
    later(plane, DAY_S)
    assert [backup.verified_at is None for backup in backups(plane)] == [False, True]
    refusing(monkeypatch, VerifyBackup, "backup.damaged")
    for _ in range(7):
        later(plane, DAY_S)
    assert (standing(plane).state, error_of(plane)) == ("failed", "it went wrong")


def test_a_backup_that_ends_after_its_hours_is_verified_before_others_are_removed(plane: ControlPlane) -> None:
    policy(plane, window="01:00-01:10", verify_every_s=2 * DAY_S, keep_daily=1, keep_weekly=0, keep_monthly=0)
    for _ in range(5):
        plane.world.clock.sleep(standing(plane).next_at + 1 - plane.time.now())
        plane.time.look()
        keeper(plane).round()
        plane.engine.drain()
        later(plane, HOUR)
        (newest,) = backups(plane)
        verified_at = standing(plane).verified_at
        assert verified_at is not None
        assert newest.created_at - verified_at < 2 * DAY_S


def test_its_backups_stay_when_it_or_its_vm_is_deleted(plane: ControlPlane) -> None:
    policy(plane, "train")
    later(plane, HOUR)
    plane.services.vms.delete("default", "train")
    plane.engine.drain()
    later(plane, 3 * DAY_S)
    assert len(backups(plane)) == 1
    assert plane.services.backup_policies.get("default", "nightly").standings == ()
    plane.services.backup_policies.delete("default", "nightly")
    assert [backup.policy for backup in backups(plane)] == [None]


def test_what_cannot_be_a_policy_is_refused(plane: ControlPlane) -> None:
    for wanted in ({"every_s": 60}, {"keep_daily": 0, "keep_weekly": 0, "keep_monthly": 0}, {"verify_every_s": 1}):
        with pytest.raises(InvalidInput) as refused:
            policy(plane, **wanted)
        assert refused.value.code == "backup.policy_invalid"
    with pytest.raises(NotFound) as nobody:
        policy(plane, "nobody")
    assert nobody.value.code == "vm.unknown"
    policy(plane)
    with pytest.raises(Conflict) as twice:
        policy(plane)
    assert twice.value.code == "backup.policy_exists"
    with pytest.raises(Conflict) as held:
        plane.services.backup_targets.delete("nas")
    assert held.value.code == "backup.target_in_use"
    with pytest.raises(NotFound) as unknown:
        plane.services.backup_policies.get("default", "nightlyy")
    assert unknown.value.code == "backup.policy_unknown"
    plane.services.backup_policies.delete("default", "nightly")
    plane.services.backup_targets.delete("nas")
