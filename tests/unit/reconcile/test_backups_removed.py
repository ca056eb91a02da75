# SPDX-License-Identifier: Apache-2.0
"""What policies of backups remove when no backup can be made, and what they never remove."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text

from orchestrator.core.actions.backups import RemoveBackup, StoreBackup, VerifyBackup
from orchestrator.core.actions.host_actions import ActionResult
from orchestrator.core.errors import Conflict, Fatal
from orchestrator.core.vms import backup_policy
from orchestrator.core.vms.backup import Backup
from orchestrator.core.vms.backup_policy import RETRY_S
from orchestrator.core.vms.lease import DAY_S
from orchestrator.services.vms import backups as service
from orchestrator.services.vms.backup_policies import BackupPolicyService, PolicyInfo
from tests.fakes import fake_actions
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, create_vm
from tests.unit.reconcile.test_backup_policies import (
    backups,
    error_of,
    later,
    plane,
    policy,
    refusing,
    standing,
)

__all__ = ["plane"]


def three(plane: ControlPlane, **wanted: Any) -> tuple[Backup, ...]:
    """Of a policy that then keeps the newest alone, and is to make the next one."""
    policy(plane, "train", keep_daily=3, keep_weekly=0, keep_monthly=0, **wanted)
    for _ in range(3):
        later(plane, DAY_S)
    plane.services.backup_policies.change("default", "nightly", {"keep_daily": 1})
    made = backups(plane)
    assert len(made) == 3
    return made


def in_a_pool(plane: ControlPlane, _: pytest.MonkeyPatch) -> None:
    with plane.store.begin() as tx:
        vm = tx.vms.list(tenant="default")[0]
        tx.vms.update(replace(vm, spec=replace(vm.spec, pool="fast")))


def target_full(_: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing(monkeypatch, StoreBackup, "backup.target_full")


def host_gone(plane: ControlPlane, _: pytest.MonkeyPatch) -> None:
    """Another one has mounted the same target."""
    plane.add_host(L40S_HOST)
    plane.machine(L40S_HOST).written |= plane.machine(T4_HOST).written
    with plane.store.begin() as tx:
        tx.hosts.update(replace(tx.hosts.get(T4_HOST), state="unreachable", state_reason="no answer"))


@pytest.mark.parametrize(("prevent", "state"), [(in_a_pool, "failed"), (target_full, "failed"), (host_gone, "overdue")])
def test_what_is_not_kept_is_removed_when_none_can_be_made_and_the_newest_stays(
    plane: ControlPlane,
    monkeypatch: pytest.MonkeyPatch,
    prevent: Callable[[ControlPlane, pytest.MonkeyPatch], None],
    state: str,
) -> None:
    before = three(plane)
    prevent(plane, monkeypatch)
    later(plane, 3 * DAY_S)
    assert backups(plane) == before[-1:]
    assert standing(plane).state == state
    later(plane, 3 * DAY_S)
    assert backups(plane) == before[-1:]


def test_what_is_left_by_others_keeps_no_policy_from_its_backups(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MAX_OF_TENANT", 1)
    plane.services.backups.run("default", "train", None)
    plane.engine.drain()
    policy(plane)
    for _ in range(3):
        later(plane, DAY_S)
    assert (len(backups(plane)), standing(plane).state) == (4, "good")
    with pytest.raises(Conflict) as by_hand:
        plane.services.backups.run("default", "train", None)
    assert by_hand.value.code == "backup.too_many"
    assert backups(plane)[0].id in str(by_hand.value.hint)


def test_backups_of_policies_that_are_gone_are_bounded(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_OF_TENANT", 1)
    for _ in range(4):
        policy(plane)
        later(plane, DAY_S)
        plane.services.backup_policies.delete("default", "nightly")
    assert len(backups(plane)) == 2


def test_no_more_are_made_where_none_can_be_removed(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup_policy, "MAX_OVER", 1)
    policy(plane, keep_daily=1, keep_weekly=0, keep_monthly=0)
    refusing(monkeypatch, RemoveBackup, "backup.failed")
    for _ in range(4):
        later(plane, DAY_S)
    assert len(backups(plane)) == 2
    assert "which could not be removed" in str(error_of(plane))


def restored(plane: ControlPlane, backup: Backup) -> str | None:
    plane.services.vms.create(create_vm("again", start=False))
    plane.engine.drain()
    return plane.services.backups.restore("default", backup.id, "again").operation


def made_a_vm(plane: ControlPlane, backup: Backup) -> str | None:
    wanted = replace(create_vm("again", profile="GRID T4-2Q"), from_backup=backup.id)
    return plane.services.vms.create(wanted).operation


@pytest.mark.parametrize("begin", [restored, made_a_vm])
def test_one_that_is_restored_is_not_removed_meanwhile(
    plane: ControlPlane, begin: Callable[[ControlPlane, Backup], str | None]
) -> None:
    (oldest, *_) = three(plane)
    restores = str(begin(plane, oldest))
    with pytest.raises(Conflict) as by_hand:
        plane.services.backups.delete("default", oldest.id)
    assert (by_hand.value.code, restores in str(by_hand.value.hint)) == ("backup.in_use", True)
    plane.engine.waiting.remove(restores)
    later(plane, DAY_S)
    assert [backup.id == oldest.id for backup in backups(plane)] == [True, False]
    plane.engine.submit(restores)
    plane.engine.drain()
    assert plane.services.operations.get(restores).state == "done"
    later(plane, DAY_S)
    assert len(backups(plane)) == 1


def test_one_that_is_being_removed_is_not_restored(plane: ControlPlane) -> None:
    (oldest, *_) = three(plane)
    plane.services.vms.create(create_vm("again", start=False))
    plane.engine.drain()
    plane.services.backups.delete("default", oldest.id)
    with pytest.raises(Conflict) as refused:
        plane.services.backups.restore("default", oldest.id, "again")
    assert refused.value.code == "backup.in_use"


def test_one_that_cannot_be_removed_is_told_and_holds_up_no_other(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    (oldest, *_) = three(plane)
    original = fake_actions.perform_on

    def refuse(machine: Any, action: Any) -> ActionResult:
        if isinstance(action, RemoveBackup) and action.backup == oldest.id:
            raise Fatal("backup.elsewhere", "another host has it")
        return original(machine, action)

    monkeypatch.setattr("tests.fakes.fake_host.perform_on", refuse)
    later(plane, DAY_S)
    assert [backup.id for backup in backups(plane)][:-1] == [oldest.id]
    assert len(backups(plane)) == 2
    assert standing(plane).state == "failed"
    assert "could not remove: 1;" in str(error_of(plane))
    monkeypatch.undo()
    later(plane, DAY_S)
    assert (len(backups(plane)), standing(plane).state) == (1, "good")


def test_none_is_removed_while_the_newest_is_found_damaged(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = three(plane, verify_every_s=DAY_S)
    refusing(monkeypatch, (StoreBackup, VerifyBackup), "backup.damaged")
    later(plane, 2 * DAY_S)
    later(plane, RETRY_S)
    assert [backup.id for backup in backups(plane)] == [backup.id for backup in before]
    assert standing(plane).state == "failed"


def test_one_that_is_paused_makes_and_removes_nothing_and_is_not_overdue(plane: ControlPlane) -> None:
    before = three(plane)
    change = plane.services.backup_policies.change
    change("default", "nightly", {"paused": True})
    later(plane, 9 * DAY_S)
    assert (backups(plane), standing(plane).state) == (before, "good")
    change("default", "nightly", {"paused": False})
    later(plane, 60)
    assert len(backups(plane)) == 1


def test_backups_of_a_vm_that_is_gone_are_nobodys_to_remove(plane: ControlPlane) -> None:
    three(plane)
    plane.services.vms.delete("default", "train")
    plane.engine.drain()
    assert [backup.policy for backup in backups(plane)] == [None, None, None]


def test_vms_are_counted_once_a_minute_however_often_somebody_asks(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy(plane)
    policies, looks = plane.services.backup_policies, list[object]()
    original = BackupPolicyService.list

    def look(self: BackupPolicyService, tenants: tuple[str, ...] | None) -> tuple[PolicyInfo, ...]:
        looks.append(tenants)
        return original(self, tenants)

    monkeypatch.setattr(BackupPolicyService, "list", look)
    for _ in range(3):
        assert policies.counts() == {"good": 1}
    assert len(looks) == 1
    plane.world.clock.sleep(61)
    policies.counts()
    assert len(looks) == 2


def test_what_is_asked_of_each_vm_in_turn_is_found_by_an_index(plane: ControlPlane) -> None:
    """Of a hundred thousand rows, at each look."""
    three(plane)
    with plane.store.read() as tx:
        explain = "EXPLAIN QUERY PLAN SELECT * FROM"
        paged = "(created_at, id) > (1.5, 'x') ORDER BY created_at, id LIMIT 3"
        asked = (
            "backups WHERE vm = 'x' AND policy = 'y'", "volumes WHERE snapshot_of = 'x'",
            f"backups WHERE tenant IN ('x') AND {paged}", f"backups WHERE {paged}",
        )  # fmt: skip
        plans = [str(tx.vms._db.execute(text(f"{explain} {each}")).all()) for each in asked]
    assert "ix_backups_vm" in plans[0]
    assert "ix_volumes_snapshot_of" in plans[1]
    assert ("ix_backups_page" in plans[2], "ix_backups_age" in plans[3]) == (True, True)
    assert "TEMP B-TREE" not in plans[2] + plans[3]
