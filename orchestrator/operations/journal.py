# SPDX-License-Identifier: Apache-2.0
"""Writes an operation's course to the database: each change is committed before the next effect.

An attempt that another one has overtaken can write nothing any more.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.core.errors import Bug, VgpuctlError, error_to_dict
from orchestrator.core.operation import FINISHED, STEP_TRANSITIONS, Operation, OperationState, StepState
from orchestrator.operations.fencing import attempt
from orchestrator.ports.clock import Clock
from orchestrator.ports.store.operations import Job
from orchestrator.ports.store.transaction import Store

_ENDS: frozenset[StepState] = frozenset({"done", "failed", "undone", "undo_failed"})


class Journal:
    """Of all operations."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def take_up(self, operation_id: str) -> Job | None:
        """Begin the next attempt; None when the operation has ended."""
        with self._store.begin() as tx:
            operation = tx.operations.get(operation_id).operation
            if operation.state in FINISHED:
                return None
            state: OperationState = "running" if operation.state == "queued" else operation.state
            tx.operations.update(replace(operation, state=state, attempt=operation.attempt + 1))
            return tx.operations.get(operation_id)

    def is_cancelled(self, operation_id: str) -> bool:
        with self._store.read() as tx:
            return tx.operations.is_cancelled(operation_id)

    def step(self, operation: Operation, position: int, state: StepState, message: str = "") -> Operation:
        """Move one step on; the operation as it is then.

        :raises Bug: ``operation.step_transition``
        """
        record = operation.steps[position]
        if state not in STEP_TRANSITIONS[record.state]:
            raise Bug("operation.step_transition", f"step {record.name} cannot go from {record.state} to {state}")
        now = self._clock.now()
        moved = replace(
            record,
            state=state,
            message=message,
            started_at=now if record.started_at is None else record.started_at,
            finished_at=now if state in _ENDS else None,
        )
        with attempt(self._store, operation.id, operation.attempt) as tx:
            tx.operations.put_step(operation.id, position, moved)
        return replace(operation, steps=(*operation.steps[:position], moved, *operation.steps[position + 1 :]))

    def note(self, operation: Operation, position: int, message: str) -> None:
        """Progress inside a step."""
        with attempt(self._store, operation.id, operation.attempt) as tx:
            tx.operations.put_step(operation.id, position, replace(operation.steps[position], message=message))

    def undoing(self, operation: Operation, position: int, error: VgpuctlError) -> Operation:
        """It failed in that step; from now on it is taken back."""
        return self._update(replace(operation, state="undoing", error=_error(operation, position, error)))

    def ended(self, operation: Operation, state: OperationState, warnings: tuple[str, ...]) -> Operation:
        """Done, or taken back."""
        return self._update(
            replace(operation, state=state, finished_at=self._clock.now(), warnings=warnings, remainder=())
        )

    def stuck(self, operation: Operation, position: int, error: VgpuctlError, remainder: tuple[str, ...]) -> Operation:
        """It can neither go on nor be taken back; the first cause stays what is shown, ``stuck_by`` is the last one."""
        first = operation.error or _error(operation, position, error)
        return self._update(
            replace(
                operation,
                state="stuck",
                finished_at=self._clock.now(),
                error={**first, "stuck_by": error.code},
                remainder=remainder,
            )
        )

    def _update(self, operation: Operation) -> Operation:
        with attempt(self._store, operation.id, operation.attempt) as tx:
            tx.operations.update(operation)
        return operation


def _error(operation: Operation, position: int, error: VgpuctlError) -> dict[str, object]:
    """With the title of the step it happened in."""
    return {**error_to_dict(error), "step": operation.steps[position].title}
