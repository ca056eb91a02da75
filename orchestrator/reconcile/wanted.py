# SPDX-License-Identifier: Apache-2.0
"""What the database wants of a host, as core/diff takes it."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.core.attachments import observed_on
from orchestrator.core.diff import ExpectedHost, ExpectedVm
from orchestrator.core.host import Host
from orchestrator.core.operation import FINISHED, Operation
from orchestrator.core.snapshot import HostSnapshot
from orchestrator.core.vm import Vm
from orchestrator.ports.store.transaction import Transaction

TO_RUN = frozenset({"create_vm", "preempt_for_vm", "start_vm", "start_freed_vm"})
"""Kinds after which their VM is to run."""
_TO_REST = frozenset({"create_stopped_vm", "stop_vm", "clean_up", "free_vm"})
REMOVED = {"delete_vm": "done", "create_vm": "undone", "preempt_for_vm": "undone", "create_stopped_vm": "undone"}
"""Kind → the end after which nothing of the VM is wanted."""


def wanted_of(tx: Transaction, host: Host, snapshot: HostSnapshot, since: float) -> ExpectedHost:
    """``since``: when the look at the host began."""
    vms, busy, gone = [], set[str](), set[str]()
    for vm in tx.vms.list(host=host.name):
        operation = None if vm.operation is None else tx.operations.get(vm.operation).operation
        if operation is None or vm.state not in {"running", "stopped"} or not _over(operation, since):
            busy.add(vm.id)
            continue
        claimed = vm.deallocated is not None or tx.claims.find(vm.id) is not None
        vms.append(ExpectedVm(vm=vm, running=_to_run(vm, operation), claimed=claimed))
    for owner in set(_owners(snapshot)) - busy - {one.vm.id for one in vms}:
        operations = tx.operations.of_subject(owner)
        if not all(_over(one, since) for one in operations) or tx.vms.find_id(owner) is not None:
            busy.add(owner)
        elif any(REMOVED.get(one.kind) == one.state for one in operations):
            gone.add(owner)
    return ExpectedHost(host=host, vms=tuple(vms), busy=frozenset(busy), gone=frozenset(gone))


def _over(operation: Operation, since: float) -> bool:
    """Nothing of it can still change what that look saw, and no operator is at work on it."""
    if operation.state == "stuck":
        return False
    return operation.state in FINISHED and (operation.finished_at or since) < since


def _to_run(vm: Vm, operation: Operation) -> bool:
    """What its users asked for last; what was undone left it as it was."""
    if operation.state == "done" and operation.kind in TO_RUN | _TO_REST:
        return operation.kind in TO_RUN
    return vm.state == "running"


def _owners(snapshot: HostSnapshot) -> Iterator[str]:
    owners = [one.owner for one in snapshot.domains]
    owners += [one.owner for one in (*snapshot.volumes, *snapshot.seeds)]
    owners += [one.owner for gpu in snapshot.gpus for one in observed_on(gpu)]
    return (owner for owner in owners if owner is not None)
