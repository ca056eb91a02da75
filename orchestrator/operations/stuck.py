# SPDX-License-Identifier: Apache-2.0
"""The ways out of an operation, and taking a stuck one up again: for an operator who says so and the reconciler."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.core.operation import FINISHED, OUT_OF_REACH, Operation, WayOut
from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.operations.restored import is_restored
from orchestrator.store.transaction import Transaction

_GOING_BACK = frozenset({"undoing", "undone", "undo_failed"})
"""Steps of an operation that was being taken back; also one that only goes forward is, before its first effect."""


def ways_out(operation: Operation) -> tuple[WayOut, ...]:
    """What can be done to it as it stands. Only what is among these is offered, and only that is not refused."""
    definition = DEFINITIONS.get(operation.kind)
    if operation.state == "stuck":
        found_done = definition is not None and definition.is_found_done(operation)
        return ("retry",) if found_done else ("retry", "abandon")
    can_be_taken_back = definition is not None and not definition.only_forward(operation)
    waits = operation.host_wait is not None and operation.host_wait.state == "waiting"
    ways: tuple[WayOut, ...] = ("cancel",) if can_be_taken_back else ()
    return () if operation.state in FINISHED else (*ways, "abandon") if waits else ways


def waits_for_its_host(operation: Operation) -> bool:
    """Nothing is wrong with it but that its host was away, as one that reboots is, when it was needed."""
    return operation.state == "stuck" and (operation.error or {}).get("stuck_by") in OUT_OF_REACH


def take_up(tx: Transaction, operation: Operation) -> None:
    """A stuck operation goes on, or back, from where it stands once it is submitted to the engine. One about a host
    that a backup has as unfinished goes on from its beginning: nothing there is taken back."""
    definition = DEFINITIONS.get(operation.kind)
    if is_restored(operation):
        for position, step in enumerate(operation.steps):
            begin = replace(step, state="pending", started_at=None, finished_at=None, message="")
            tx.operations.put_step(operation.id, position, begin)
        tx.operations.update(replace(operation, state="running", finished_at=None, remainder=()))
        return
    going_back = any(step.state in _GOING_BACK for step in operation.steps)
    onward = definition is not None and (
        definition.is_found_done(operation) or (definition.only_forward(operation) and not going_back)
    )
    if onward:
        for position, step in enumerate(operation.steps):
            if step.state in {"failed", "undo_failed"}:
                tx.operations.put_step(operation.id, position, replace(step, state="pending"))
    tx.operations.update(
        replace(
            operation,
            state="running" if onward else "undoing",
            finished_at=None,
            remainder=(),
            error=None if onward else operation.error,
        )
    )
