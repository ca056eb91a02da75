# SPDX-License-Identifier: Apache-2.0
"""Turns findings into ordinary operations. Decided again inside the transaction that begins each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator.core.contained import Contained
from orchestrator.core.diff import Finding, StoredFinding, changes
from orchestrator.core.errors import NotFound
from orchestrator.core.operation import FINISHED, Operation
from orchestrator.core.vm import Vm, VmState
from orchestrator.core.wire import action_to_dict
from orchestrator.operations.stuck import take_up, waits_for_its_host
from orchestrator.ports.clock import Clock, Ids
from orchestrator.ports.engine import Engine
from orchestrator.ports.store.transaction import Store, Transaction
from orchestrator.services.begin import new_operation, record

ACTOR = "reconcile"
_FROM: dict[str, VmState] = {"start_vm": "stopped", "stop_vm": "running", "clean_up": "stopped"}
_TO: dict[str, VmState] = {"start_vm": "starting", "stop_vm": "stopping", "clean_up": "stopping"}


@dataclass(frozen=True, kw_only=True)
class Repairer:
    """Begins repairs; the engine does them."""

    store: Store
    engine: Engine
    clock: Clock
    ids: Ids
    fresh_s: float = 300.0
    """Nothing is done on a host that was not seen for longer."""
    timeout_s: float = 900.0
    """So long after a repair that did not help, the same is not tried again by itself."""

    def repair(self, *, host: str | None, automatic_only: bool) -> tuple[str, ...]:
        """Ids of the operations that were begun."""
        with self.store.read() as tx:
            standing = [one.finding for one in tx.findings.list(host=host) if self._due(tx, one, automatic_only)]
        groups: dict[tuple[str, str], list[Finding]] = {}
        for finding in changes(standing, automatic_only=automatic_only):
            groups.setdefault((finding.host, finding.vm or finding.subject), []).append(finding)
        begun, broken = list[str](), list[Exception]()
        for group in groups.values():  # each in a transaction of its own: one that cannot be begun keeps no other
            with Contained(broken.append):
                operation = self._begin_due(group, automatic_only)
                if operation is not None:
                    begun.append(operation)
        if broken:
            raise broken[0]
        return tuple(begun)

    def _begin_due(self, group: Sequence[Finding], automatic_only: bool) -> str | None:
        keys = {one.key for one in group}
        with self.store.begin() as tx:
            kept = [one for one in tx.findings.list(host=group[0].host) if one.finding.key in keys]
            due = [one.finding for one in kept if self._due(tx, one, automatic_only)]
            operation = self._begin(tx, due) if due else None
        if operation is not None:
            self.engine.submit(operation)
        return operation

    def take_up(self, name: str) -> tuple[str, ...]:
        """Operations that got stuck while the host was away go on once it has been seen whole since; their ids."""
        with self.store.read() as tx:  # a look seldom finds one, and is not to wait for the writers
            if not _waiting(tx, name):
                return ()
        with self.store.begin() as tx:
            waiting = _waiting(tx, name)
            for one in waiting:
                take_up(tx, one)
                outcome = "its host is back"
                tx.audit.append(at=self.clock.now(), actor=ACTOR, action="retry", subject=one.id, outcome=outcome)
        for one in waiting:
            self.engine.submit(one.id)
        return tuple(one.id for one in waiting)

    def _due(self, tx: Transaction, kept: StoredFinding, automatic_only: bool) -> bool:
        now = self.clock.now()
        host = tx.hosts.get(kept.finding.host)
        if host.state != "ready" or kept.last_seen < now - self.fresh_s:
            return False
        if kept.operation is None:
            return True
        last = tx.operations.get(kept.operation).operation
        if last.state not in FINISHED:
            return False
        return not automatic_only or (last.finished_at or now) < now - self.timeout_s

    def _begin(self, tx: Transaction, group: Sequence[Finding]) -> str | None:
        """One operation for all findings of one VM; None when the VM is not as it was."""
        first = group[0]
        if first.repair is None or first.vm is None:
            return None
        kind, vm = first.repair.kind, tx.vms.find_id(first.vm)
        if not _may(tx, kind, first.vm, vm):
            return None
        operation = new_operation(
            kind, subject=first.vm, tenant=vm.spec.tenant if vm else None, clock=self.clock, ids=self.ids
        )
        if vm is not None:
            tx.vms.update(replace(vm, state=_TO[kind], operation=operation.id))
        actions = [action_to_dict(action) for one in group if one.repair for action in one.repair.actions]
        name = vm.spec.name if vm else first.vm
        inputs: dict[str, object] = {"vm": name, "previous_state": vm.state if vm else "stopped", "actions": actions}
        record(tx, operation, host=first.host, inputs=inputs)
        for one in group:
            tx.findings.set_operation(one, operation.id)
            outcome = f"{operation.kind} {operation.id}"
            tx.audit.append(at=self.clock.now(), actor=ACTOR, action=one.code, subject=one.subject, outcome=outcome)
        return operation.id


def _may(tx: Transaction, kind: str, vm_id: str, vm: Vm | None) -> bool:
    """No operation works on it, and it is still in the state that the repair is for."""
    if any(one.state not in {"done", "undone"} for one in tx.operations.of_subject(vm_id)):
        return False
    return kind == "clean_up" if vm is None else vm.state == _FROM[kind]


def _waiting(tx: Transaction, name: str) -> tuple[Operation, ...]:
    stuck = tuple(one for one in tx.operations.stuck_on(name) if waits_for_its_host(one))
    if not stuck:
        return ()
    try:
        host, snapshot = tx.hosts.get(name), tx.hosts.snapshot(name)
    except NotFound:
        return ()
    if host.state != "ready" or host.last_seen_at is None or snapshot is None or snapshot.problems:
        return ()
    return tuple(one for one in stuck if (one.finished_at or 0.0) < host.last_seen_at)
