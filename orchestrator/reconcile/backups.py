# SPDX-License-Identifier: Apache-2.0
"""Begins what is due by policies of backups, by ordinary operations: backups, their verification, the removal of what
a policy does not keep.

Of one policy's for one VM there is one operation at a time, written down with what begins it: a controller that dies,
or two at once, begin nothing twice. Moments are those that have surely passed (services/site_time.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from orchestrator.core.contained import Contained
from orchestrator.core.errors import NoCapacity, VgpuctlError, error_to_dict
from orchestrator.core.maintenance.maintenance import held_vms
from orchestrator.core.operation import UNFINISHED, OperationState
from orchestrator.core.vms.backup import Backup
from orchestrator.core.vms.backup_policy import (
    MAX_AT_ONCE,
    MAX_ON_HOST,
    NONE_YET,
    RETRY_S,
    BackupPolicy,
    BackupTurn,
    PolicyBackups,
    due_at,
    expired,
    is_due,
    rested,
    run_at,
)
from orchestrator.core.vms.vm import Vm
from orchestrator.core.vms.volume import written
from orchestrator.services.fleet.index import FleetIndex
from orchestrator.services.messages import Started
from orchestrator.services.site_time import SiteTime
from orchestrator.services.vms.backups import NO_ROOM, VmBackups, WantedBackup
from orchestrator.store.transaction import Transaction

_BUSY = "vm.busy"


@dataclass(frozen=True, kw_only=True)
class _Due:
    """Something may be begun, or has ended."""

    policy: BackupPolicy
    vm: Vm
    at: float
    """Since when."""
    removes: bool = False
    """Nothing can be made of the VM now: what is not kept is removed."""


@dataclass(frozen=True, kw_only=True)
class BackupKeeper:
    """Safe to call from many threads and controllers. ``leads``: one of several does it."""

    backups: VmBackups
    time: SiteTime
    leads: Callable[[], bool]

    def round(self) -> None:
        """Whatever is due and has room, the longest waiting first. What goes wrong with one keeps none of the others
        from its turn."""
        if not self.leads():
            return
        now, broken = self.time.now(), list[Exception]()
        with self.backups.store.read() as tx:
            on_host, due = _due(tx, now)
        for each in sorted(due, key=lambda each: each.at):
            host = each.vm.host
            if on_host[host] < MAX_ON_HOST and on_host.total() < MAX_AT_ONCE:
                with Contained(broken.append):
                    on_host[host] += self._advance(each, now)
        if broken:
            raise broken[0]

    def _advance(self, due: _Due, now: float) -> bool:
        """Whether something was begun. A VM that something else works on is left alone until the next round."""
        try:
            started = self._begin(due, now)
        except VgpuctlError as error:
            started = self._begin_disk_alone(due, error, now)
        if started is not None:
            self.backups.engine.submit(str(started.operation))
        return started is not None

    def _begin_disk_alone(self, due: _Due, error: VgpuctlError, now: float) -> Started | None:
        """A data volume that cannot be taken keeps no disk from being backed up: the backup says what hindered."""
        if error.code in NO_ROOM and written(due.vm):
            for_tenants = error.told if isinstance(error, NoCapacity) else None
            words = error.message if for_tenants is None else for_tenants.message
            try:
                return self._begin(due, now, left_out=words.partition(";")[0])  # without who holds a quota just now
            except VgpuctlError as of_disk:
                error = of_disk
        return None if error.code == _BUSY else self._refused(due, error, now)

    def _refused(self, due: _Due, error: VgpuctlError, now: float) -> Started | None:
        """What is not kept goes all the same: it may be why."""
        with self.backups.store.begin() as tx:
            turn = tx.backup_policies.turn(due.policy, due.vm.id) or _first(due, now)
            started = self._begin_after(tx, due.policy, due.vm, now)
            begun = None if started is None else started.operation
            refusal = error_to_dict(error) | {"refused": True}
            tx.backup_policies.put_turn(replace(turn, tried_at=now, operation=begun, error=refusal))
        return started

    def _begin(self, due: _Due, now: float, left_out: str = "") -> Started | None:
        """Decided again: since the first look the policy may be another one, or something be begun. ``left_out``: why
        no data volume is taken."""
        with self.backups.planner.index.current() as fleet, self.backups.store.begin() as tx:
            policies = tx.backup_policies.list((due.policy.tenant,))
            policy = next((policy for policy in policies if policy.name == due.policy.name), None)
            vm = tx.vms.find_id(due.vm.id)
            if policy is None or policy.paused or vm is None or not policy.covers(vm.id):
                return None
            turn = tx.backup_policies.turn(policy, vm.id) or _first(due, now)
            if turn.operation is not None:
                its = tx.backup_policies.states([turn]).get(turn.operation)
                if _goes_on(its):
                    return None
                turn = _settled(tx, policy, vm, turn, its, now)
                damaged = its is not None and its[0] == "verify_backup" and its[1] != "done"
                started = None if damaged else self._begin_after(tx, policy, vm, now)
            elif due.removes:
                started = self._begin_after(tx, policy, vm, now)
            else:
                wanted = WantedBackup(target=policy.target, at=now, policy=policy, left_out=left_out)
                started = self._begin_due(tx, fleet, policy, vm, turn, wanted)
            if started is not None:
                turn = replace(turn, tried_at=now, operation=str(started.operation))
            tx.backup_policies.put_turn(turn)
            return started

    def _begin_due(
        self, tx: Transaction, fleet: FleetIndex, policy: BackupPolicy, vm: Vm, turn: BackupTurn, wanted: WantedBackup
    ) -> Started | None:
        made = _made(tx, policy, vm)
        if is_due(policy, run_at(policy, vm.id, vm.created_at, made), turn, wanted.at):
            return self.backups.begin_run(tx, fleet, vm, wanted)
        if is_due(policy, _verify_at(policy, vm, made), turn, wanted.at):
            return self.backups.begin_about(tx, tx.backup_policies.backups_of(policy, vm.id)[-1], "verify_backup")
        return None

    def _begin_after(self, tx: Transaction, policy: BackupPolicy, vm: Vm, now: float) -> Started | None:
        """What was to be made is made, or cannot be: first the newest is verified if that is due, then what is not kept
        goes. A backup may end after its hours: waiting for the next ones, in which the next backup is due first, would
        be for ever."""
        if _verify_at(policy, vm, _made(tx, policy, vm)) <= now:
            return self.backups.begin_about(tx, tx.backup_policies.backups_of(policy, vm.id)[-1], "verify_backup")
        unused = (each for each in _removable(tx, policy, vm, now) if not tx.backups.used_by(each.id))
        first = next(unused, None)
        return None if first is None else self.backups.begin_about(tx, first, "delete_backup")


def _due(tx: Transaction, now: float) -> tuple[Counter[str], list[_Due]]:
    """And how many operations go on on each host."""
    policies, on_host = tuple(each for each in tx.backup_policies.list() if not each.paused), Counter[str]()
    if not policies:
        return on_host, []
    turns, made = tx.backup_policies.turns(), tx.backup_policies.made()
    states = tx.backup_policies.states(turns.values())
    ready = {host.name for host in tx.observations.ready() if host.restored is None}
    maintenances, waiting = tx.maintenances.active(), list[_Due]()
    held = {vm for host in ready for vm in held_vms(maintenances, host)}
    for policy, vm in _covered(tx, policies):
        key = (policy.tenant, policy.name, vm.id)
        turn, its = turns.get(key), made.get(key, NONE_YET)
        state = None if turn is None or turn.operation is None else states.get(turn.operation)
        if _goes_on(state):
            on_host[vm.host] += state is not None and state[1] in UNFINISHED
        elif vm.host in ready and vm.id not in held and vm.state in {"running", "stopped"}:
            at = min(run_at(policy, vm.id, vm.created_at, its), _verify_at(policy, vm, its))
            if turn is not None and turn.operation is not None:
                waiting.append(_Due(policy=policy, vm=vm, at=turn.tried_at))
            elif is_due(policy, at, turn, now):
                waiting.append(_Due(policy=policy, vm=vm, at=at))
        elif ready and its.backups > 1 and rested(turn, now) and _removable(tx, policy, vm, now):
            waiting.append(_Due(policy=policy, vm=vm, at=now, removes=True))
    return on_host, waiting


def _covered(tx: Transaction, policies: tuple[BackupPolicy, ...]) -> Iterator[tuple[BackupPolicy, Vm]]:
    vms = {tenant: tx.vms.list(tenant=tenant) for tenant in {policy.tenant for policy in policies}}
    return ((policy, vm) for policy in policies for vm in vms[policy.tenant] if policy.covers(vm.id))


def _verify_at(policy: BackupPolicy, vm: Vm, made: PolicyBackups) -> float:
    if policy.verify_every_s is None or made.newest_at is None:
        return float("inf")
    return due_at(policy, policy.verify_every_s, vm.id, made.verified_at, made.newest_at)


def _made(tx: Transaction, policy: BackupPolicy, vm: Vm) -> PolicyBackups:
    return tx.backup_policies.made(vm.id).get((policy.tenant, policy.name, vm.id), NONE_YET)


def _removable(tx: Transaction, policy: BackupPolicy, vm: Vm, now: float) -> list[Backup]:
    """What it does not keep of the VM, without what it has just failed to remove: the oldest first, those that were
    never tried before others."""
    over = expired(policy, tx.backup_policies.backups_of(policy, vm.id))
    to_remove = [each for each in over if each.unremoved_at is None or now >= each.unremoved_at + RETRY_S]
    return sorted(to_remove, key=lambda each: each.unremoved_at or 0.0)


def _goes_on(operation: tuple[str, OperationState] | None) -> bool:
    """Its kind and state. Also where it is stuck, as somebody has to look at what it has left on the host; but for a
    removal, without which backups go on."""
    if operation is None:
        return False
    kind, state = operation
    return state in UNFINISHED or (state == "stuck" and kind != "delete_backup")


def _settled(
    tx: Transaction, policy: BackupPolicy, vm: Vm, turn: BackupTurn, its: tuple[str, OperationState] | None, now: float
) -> BackupTurn:
    """Without its operation, which has ended or is forgotten, and with why the last backup or verification went wrong;
    what could not be removed says so itself."""
    kind, state = its or ("", "done")
    ended = None if state == "done" else tx.operations.get(str(turn.operation)).operation
    if kind == "delete_backup":
        if ended is not None:
            tx.backups.not_removed(ended.subject, now)
        return replace(turn, operation=None)
    error = None if ended is None else ended.error or {"message": state}
    if kind == "verify_backup" and error is None and run_at(policy, vm.id, vm.created_at, _made(tx, policy, vm)) <= now:
        error = turn.error  # of a backup, which is still to be made
    return replace(turn, operation=None, error=error, tried_at=now)


def _first(due: _Due, now: float) -> BackupTurn:
    return BackupTurn(tenant=due.policy.tenant, policy=due.policy.name, vm=due.vm.id, tried_at=now)
