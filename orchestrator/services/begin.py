# SPDX-License-Identifier: Apache-2.0
"""Writing a new operation, in the transaction that claims what it works on."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.core.operation import FINISHED, Operation
from orchestrator.core.vm import Vm
from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.ports.clock import Clock, Ids
from orchestrator.ports.store.transaction import Transaction
from orchestrator.services.acting import actor


def new_operation(kind: str, *, subject: str, tenant: str | None, clock: Clock, ids: Ids) -> Operation:
    """Queued, with all its steps pending."""
    return Operation(
        id=ids.new_uuid(),
        kind=kind,
        subject=subject,
        tenant=tenant,
        state="queued",
        steps=DEFINITIONS[kind].records(),
        attempt=0,
        created_at=clock.now(),
    )


def running_operation(tx: Transaction, vm: Vm) -> str | None:
    """Id of the VM's operation that has not ended; None: there is none."""
    if vm.operation is None or tx.operations.get(vm.operation).operation.state in FINISHED:
        return None
    return vm.operation


def record(
    tx: Transaction, operation: Operation, *, host: str, inputs: dict[str, object], waits_for: Sequence[str] = ()
) -> None:
    """Operation and audit record. ``waits_for``: ids of the operations that have to end first."""
    tx.operations.add(operation, host=host, inputs=inputs, waits_for=waits_for)
    tx.audit.append(
        at=operation.created_at,
        actor=actor(),
        action=operation.kind,
        subject=operation.subject,
        outcome="accepted",
    )
