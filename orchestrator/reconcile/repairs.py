# SPDX-License-Identifier: Apache-2.0
"""Turns findings into ordinary operations. Decided again inside the transaction that begins each."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from orchestrator.core.actions.host_actions import HostAction
from orchestrator.core.contained import Contained
from orchestrator.core.diff import Finding, StoredFinding, changes
from orchestrator.core.errors import NotFound
from orchestrator.core.hosts.host import Host
from orchestrator.core.operation import FINISHED, HostWait, Operation
from orchestrator.core.vms.vm import Vm, VmState
from orchestrator.core.wire import action_to_dict
from orchestrator.operations.definitions.hosts import UPGRADE_AGENT
from orchestrator.operations.stuck import take_up, waits_for_its_host
from orchestrator.ports.clock import Clock, Ids
from orchestrator.ports.engine import Engine
from orchestrator.services.begin import held_by, new_operation, record, undo_inputs
from orchestrator.services.maintenance.waits import gets_driver
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction

ACTOR = "reconcile"
RepairPolicy = Literal["none", "safe", "all"]
MAX_AT_A_TIME: Final = 4
"""Hosts that something is installed on, removed from or replaced on, all together."""
log = logging.getLogger(__name__)
_ABOUT_NO_VM = {"clean_up", "settle_ledger", "accept_gpus", "mend_host", UPGRADE_AGENT.kind}
_FROM: dict[str, VmState] = {"start_vm": "stopped", "stop_vm": "running", "clean_up": "stopped"}
_TO: dict[str, VmState] = {"start_vm": "starting", "stop_vm": "stopping", "clean_up": "stopping"}


@dataclass(frozen=True, kw_only=True)
class Repairer:
    """Begins repairs; the engine does them."""

    store: Store
    engine: Engine
    clock: Clock
    ids: Ids
    pacing: Pacing
    policy: RepairPolicy = "safe"
    """What is begun without being asked: nothing, what can harm nobody, or also starts and stops of VMs."""

    def repair(self, *, host: str | None, asked: bool) -> tuple[str, ...]:
        """Ids of the operations that were begun. Not ``asked``: what the policy allows, within its pace."""
        if not asked and self.policy == "none":
            return ()
        automatic_only = not asked and self.policy == "safe"
        with self.store.read() as tx:
            standing = [stored.finding for stored in tx.findings.list(host=host) if self._due(tx, stored, asked)]
        groups: dict[tuple[str, str], list[Finding]] = {}
        for finding in changes(standing, automatic_only=automatic_only):
            groups.setdefault((finding.host, finding.mended), []).append(finding)
        begun, broken = list[str](), list[Exception]()
        for group in groups.values():  # each in a transaction of its own: one that cannot be begun keeps no other
            with Contained(broken.append):
                operation = self._begin_due(group, asked)
                if operation is not None:
                    begun.append(operation)
        if broken:
            raise broken[0]
        return tuple(begun)

    def _begin_due(self, group: Sequence[Finding], asked: bool) -> str | None:
        keys = {finding.key for finding in group}
        with self.store.begin() as tx:
            kept = [finding for finding in tx.findings.list(host=group[0].host) if finding.finding.key in keys]
            due = [finding.finding for finding in kept if self._due(tx, finding, asked)]
            operation = self._begin(tx, due, asked) if due else None
        if operation is not None:
            self.engine.submit(operation)
        return operation

    def remove(self, host: str, owner: str, actions: Sequence[HostAction]) -> tuple[str, ...]:
        """Begin the removal of what nobody of the database knows; none while an operation is about it."""
        with self.store.begin() as tx:
            if tx.vms.find_id(owner) is not None or not _may(tx, "clean_up", owner, None):
                return ()
            operation = new_operation("clean_up", owner, clock=self.clock, ids=self.ids)
            documents = [action_to_dict(action) for action in actions]
            record(tx, operation, host=host, inputs={"vm": owner, "previous_state": "stopped", "actions": documents})
        self.engine.submit(operation.id)
        return (operation.id,)

    def take_up(self, name: str) -> tuple[str, ...]:
        """Operations that got stuck while the host was away go on once it has been seen whole since; their ids."""
        with self.store.read() as tx:  # a look seldom finds one, and is not to wait for the writers
            if not _waiting(tx, name):
                return ()
        with self.store.begin() as tx:
            waiting = _waiting(tx, name)
            for operation in waiting:
                take_up(tx, operation)
                outcome = "its host is back"
                tx.audit.append(at=self.clock.now(), actor=ACTOR, action="retry", subject=operation.id, outcome=outcome)
        for operation in waiting:
            self.engine.submit(operation.id)
        return tuple(operation.id for operation in waiting)

    def wake(self, name: str) -> tuple[str, ...]:
        """Operations that wait for the host go on once it has been seen whole, and fail when it was long away."""
        with self.store.read() as tx:
            missing = tx.operations.missing(name)
            seen = bool(missing) and _seen_at(tx, name) is not None
        long = self.pacing.waited_long(name, missing)
        woken = tuple(
            operation for operation, wait in missing.items() if wait.state == "waiting" and (seen or operation in long)
        )
        if woken:
            with self.store.begin() as tx:
                for operation in woken:
                    tx.operations.end_wait(operation, "tried" if seen and operation not in long else "over")
        for operation in woken:
            self.engine.submit(operation)
        return woken

    def _due(self, tx: Transaction, kept: StoredFinding, asked: bool) -> bool:
        name = kept.finding.host
        host = tx.hosts.get(name)
        if host.state != "ready" or not self.pacing.is_fresh(name) or not _leaves_what_is_newer(host, kept, asked):
            return False
        if kept.operation is None:
            return True
        last = tx.operations.get(kept.operation).operation
        if last.state not in FINISHED:
            return False
        return asked or self.pacing.may_try_again(last.id)

    def _begin(self, tx: Transaction, group: Sequence[Finding], asked: bool) -> str | None:
        """One operation for all findings of one VM, or of the host; None when it is not as it was, or enough was begun
        already."""
        first = group[0]
        if first.repair is None:
            return None
        kind = first.repair.kind
        vm_id = first.vm if first.mended == first.vm else None
        subject = vm_id or first.host
        vm = tx.vms.find_id(subject)
        if not _may(tx, kind, subject, vm) or (kind == "start_vm" and gets_driver(tx, tx.hosts.get(first.host))):
            return None
        if kind == UPGRADE_AGENT.kind:
            if not upgrade_in_turn(tx, subject):
                return None
        elif not asked and first.code != "orphan.image" and not self.pacing.may_begin():
            log.warning("%s of %s is left for later: enough was repaired in this hour", first.code, first.subject)
            return None
        subject_of = vm or vm_id or tx.hosts.get(first.host)
        operation = new_operation(kind, subject_of, clock=self.clock, ids=self.ids, why=f"repair of {first.code}")
        if vm is not None:
            tx.vms.update(replace(held_by(operation, vm), state=_TO[kind]))
        actions = [action_to_dict(action) for finding in group if finding.repair for action in finding.repair.actions]
        about = {"vm": vm.spec.name, **undo_inputs(vm)} if vm else {"vm": subject, "previous_state": "stopped"}
        inputs: dict[str, object] = {**about, "actions": actions}
        record(tx, operation, host=first.host, inputs=inputs)
        for finding in group:
            tx.findings.set_operation(finding, operation.id)
            outcome = f"{operation.kind} {operation.id}"
            tx.audit.append(
                at=self.clock.now(), actor=ACTOR, action=finding.code, subject=finding.subject, outcome=outcome
            )
        return operation.id


def _leaves_what_is_newer(host: Host, kept: StoredFinding, asked: bool) -> bool:
    """After a restore: what is there is newer than what is wanted of it. By itself only the agent is upgraded, and
    nothing is stopped or removed as long as nobody has settled whose it is."""
    repair = kept.finding.repair
    if host.restored is None or repair is None:
        return True
    return repair.kind not in {"stop_vm", "clean_up"} if asked else repair.kind == UPGRADE_AGENT.kind


def _may(tx: Transaction, kind: str, subject: str, vm: Vm | None) -> bool:
    """No operation works on it, and it is still in the state that the repair is for."""
    if any(operation.state not in {"done", "undone"} for operation in tx.operations.of_subject(subject)):
        return False
    return kind in _ABOUT_NO_VM if vm is None else vm.state == _FROM[kind]


def _waiting(tx: Transaction, name: str) -> tuple[Operation, ...]:
    stuck = tuple(operation for operation in tx.operations.stuck_on(name) if waits_for_its_host(operation))
    if not stuck:
        return ()
    turn = _seen_at(tx, name)
    return () if turn is None else tuple(operation for operation in stuck if operation.over_by(turn))


def _seen_at(tx: Transaction, name: str) -> int | None:
    """The turn of the last look, when that found the host and no part of it unreadable."""
    try:
        host, snapshot = tx.hosts.get(name), tx.hosts.snapshot(name)
    except NotFound:
        return None
    if host.state != "ready" or snapshot is None or snapshot.problems or snapshot.ledger_lost:
        return None
    return tx.hosts.snapshot_turn(name)


def upgrade_in_turn(tx: Transaction, host: str) -> bool:
    """No operation works on the host or on a VM there, and only a few are being upgraded. What is stuck waits for a
    person, and does not keep an agent from being replaced."""
    due = tx.operations.due()
    return (
        not any(due_operation.host == host for due_operation in due)
        and sum(due_operation.subject == due_operation.host for due_operation in due) < MAX_AT_A_TIME
    )


_HOUR_S = 3600.0
_MAX_KEPT = 10_000


class Pacing:
    """How often repairs are tried, on what they may rely, and how long operations wait for a host.

    Of one server, by its monotonic clock: a wall clock that jumps neither hastens a repair nor keeps one back. Safe to
    call from many threads."""

    def __init__(
        self,
        clock: Clock,
        *,
        fresh_s: float = 300.0,
        again_s: float = 900.0,
        per_hour: int = 20,
        host_wait_s: float = 900.0,
    ) -> None:
        """``fresh_s``: nothing is done on a host that this server has not compared for longer. ``again_s``: so long
        after a repair that did not help, the same is not tried again by itself. ``per_hour``: so many are begun
        without being asked, on all hosts together. ``host_wait_s``: so long operations wait for their host."""
        self._clock = clock
        self._fresh_s, self._again_s, self._per_hour = fresh_s, again_s, per_hour
        self._host_wait_s = host_wait_s
        self._lock = threading.Lock()
        self._compared: dict[str, float] = {}
        self._ended: dict[str, float] = {}
        self._begun = deque[float]()
        self._host_waits: dict[str, dict[tuple[str, float], float]] = {}

    def compared(self, host: str) -> None:
        """What is found there was found now."""
        with self._lock:
            self._compared[host] = self._clock.monotonic()

    def is_fresh(self, host: str) -> bool:
        """Whether what is found there was found lately, by this server itself."""
        with self._lock:
            at = self._compared.get(host)
            return at is not None and self._clock.monotonic() - at <= self._fresh_s

    def may_try_again(self, operation: str) -> bool:
        """Whether the repair that this operation was ended long enough ago; counted from when that was first asked."""
        with self._lock:
            if len(self._ended) >= _MAX_KEPT:
                self._ended.clear()
            now = self._clock.monotonic()
            return now - self._ended.setdefault(operation, now) >= self._again_s

    def waited_long(self, host: str, missing: Mapping[str, HostWait]) -> tuple[str, ...]:
        """Of the operations that miss the host now, by id: those that this server has known to for long enough."""
        with self._lock:
            now, known = self._clock.monotonic(), self._host_waits.pop(host, {})
            since = {
                (operation, wait.since): known.get((operation, wait.since), now) for operation, wait in missing.items()
            }
            if since:
                self._host_waits[host] = since
            return tuple(operation for (operation, _), first in since.items() if now - first >= self._host_wait_s)

    def may_begin(self) -> bool:
        """One more that nobody asked for; it counts when it may."""
        with self._lock:
            now = self._clock.monotonic()
            while self._begun and now - self._begun[0] >= _HOUR_S:
                self._begun.popleft()
            if len(self._begun) >= self._per_hour:
                return False
            self._begun.append(now)
            return True
