# SPDX-License-Identifier: Apache-2.0
"""Writes an operation's course to the database: each change is committed before the next effect.

One commit ends a step and begins the next one. An attempt that another one has overtaken can write nothing any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from orchestrator.core.errors import Bug, VgpuctlError, error_to_dict
from orchestrator.core.operation import (
    FINISHED,
    STEP_TRANSITIONS,
    HostWait,
    Operation,
    OperationState,
    StepRecord,
    StepState,
)
from orchestrator.ports.clock import Clock
from orchestrator.store.database import Store
from orchestrator.store.records import Job
from orchestrator.store.transaction import Transaction

_ENDS: frozenset[StepState] = frozenset({"done", "failed", "undone", "undo_failed"})

Write = Callable[[Transaction], None]


@dataclass(frozen=True)
class Move:
    """A step's next state. ``message``: None leaves it as it is."""

    position: int
    state: StepState
    message: str | None = None


@dataclass(frozen=True)
class Written:
    """The operation as it is now, and whether somebody wants it cancelled."""

    operation: Operation
    cancelled: bool


class Journal:
    """Of all operations."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def take_up(self, operation_id: str) -> Job | None:
        """Begin the next attempt, and with it the first step of an operation that has none begun; None when it has
        ended."""
        with self._store.claim() as tx:  # its row keeps it apart from whoever else moves this operation
            return tx.operations.take_up(operation_id, self._clock.now())

    def is_cancelled(self, operation_id: str) -> bool:
        with self._store.read() as tx:
            return tx.operations.is_cancelled(operation_id)

    def advance(self, operation: Operation, moves: Sequence[Move], writes: Sequence[Write] = ()) -> Written:
        """Move steps on; ``writes`` are what the step that ends has to say in the database.

        :raises Bug: ``operation.step_transition``
        """
        wait = operation.host_wait
        missed = wait if wait is None or wait.state == "over" else None
        on = replace(operation, host_wait=missed, guest_wait=None)
        if on != operation and any(move.state == "done" for move in moves):
            return self._write(on, moves, writes, whole=True)
        return self._write(operation, moves, writes, whole=False)

    def note(self, operation: Operation, position: int, message: str) -> None:
        """Progress inside a step."""
        noted = {position: replace(operation.steps[position], message=message)}
        with self._store.claim() as tx:
            if tx.operations.advance(operation, noted, whole=False) is None:
                raise Suspended

    def undoing(self, operation: Operation, moves: Sequence[Move], position: int, error: VgpuctlError) -> Written:
        """It failed in that step; from now on it is taken back."""
        failed = replace(operation, state="undoing", guest_wait=None, error=_error(operation, position, error))
        return self._write(failed, moves, (), whole=True)

    def waits(self, operation: Operation, moves: Sequence[Move], host: str) -> Written:
        """It stands where it is until its host answers; since when is kept while no step of it ends."""
        since = self._clock.now() if operation.host_wait is None else operation.host_wait.since
        wait = HostWait(host=host, since=since, state="waiting")
        return self._write(replace(operation, host_wait=wait), moves, (), whole=True)

    def waits_for_guest(self, operation: Operation) -> Written:
        """It stands where it is until its guest has booted."""
        return self._write(replace(operation, guest_wait="waiting"), (), (), whole=True)

    def ended(
        self,
        operation: Operation,
        state: OperationState,
        warnings: tuple[str, ...],
        moves: Sequence[Move] = (),
        writes: Sequence[Write] = (),
    ) -> Written:
        """Done, or taken back."""
        ended = replace(
            operation,
            state=state,
            finished_at=self._clock.now(),
            error=None if state == "done" else operation.error,
            warnings=warnings,
            remainder=(),
        )
        return self._write(ended, moves, writes, whole=True)

    def stuck(
        self,
        operation: Operation,
        position: int,
        error: VgpuctlError,
        remainder: tuple[str, ...],
        moves: Sequence[Move] = (),
    ) -> Written:
        """It can neither go on nor be taken back; the first cause stays what is shown, ``stuck_by`` is the last one."""
        first = operation.error or _error(operation, position, error)
        stuck = replace(
            operation,
            state="stuck",
            finished_at=self._clock.now(),
            error={**first, "stuck_by": error.code},
            remainder=remainder,
        )
        return self._write(stuck, moves, (), whole=True)

    def _write(self, operation: Operation, moves: Sequence[Move], writes: Sequence[Write], *, whole: bool) -> Written:
        steps = list(operation.steps)
        for move in moves:
            steps[move.position] = self._moved(steps[move.position], move)
        changed = {move.position: steps[move.position] for move in moves}
        alone = bool(writes) or operation.state in FINISHED
        with self._store.begin() if alone else self._store.claim() as tx:
            if operation.finished_at is not None:
                operation = replace(operation, finished_at=tx.time.no_earlier(operation.finished_at))
            cancelled = tx.operations.advance(operation, changed, whole=whole)
            if cancelled is None:
                raise Suspended
            for write in writes:
                write(tx)
        return Written(replace(operation, steps=tuple(steps)), cancelled)

    def _moved(self, record: StepRecord, move: Move) -> StepRecord:
        if move.state not in STEP_TRANSITIONS[record.state]:
            raise Bug("operation.step_transition", f"step {record.name} cannot go from {record.state} to {move.state}")
        now = self._clock.now()
        return replace(
            record,
            state=move.state,
            message=record.message if move.message is None else move.message,
            started_at=now if record.started_at is None else record.started_at,
            finished_at=now if move.state in _ENDS else None,
        )


def _error(operation: Operation, position: int, error: VgpuctlError) -> dict[str, object]:
    """With the title of the step it happened in."""
    return {**error_to_dict(error), "step": operation.steps[position].title}


class Suspended(Exception):
    """This run ends here and the operation does not: shutdown, or another run has taken it over."""


@contextmanager
def attempt(store: Store, operation_id: str, number: int) -> Iterator[Transaction]:
    """A writing transaction of that attempt; no later one begins before it ends.

    :raises Suspended: another attempt has begun
    """
    with store.begin() as tx:
        if not tx.operations.is_newest(operation_id, number):
            raise Suspended
        yield tx
