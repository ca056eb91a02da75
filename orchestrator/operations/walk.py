# SPDX-License-Identifier: Apache-2.0
"""One attempt at one operation: step after step on, or back.

A step is journalled as begun before its effect and as ended after it. One commit ends a step and begins the next; the
first one of an attempt is begun by the commit that takes the operation up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from orchestrator.core.errors import Conflict, Unknown, VgpuctlError
from orchestrator.operations.context import Context
from orchestrator.operations.journal import Move
from orchestrator.operations.progress import Progress, leave_while_database_is_away
from orchestrator.operations.restored import is_restored
from orchestrator.operations.step import Step

_NOT_OURS = frozenset({"vgpu.foreign", "vm.foreign_domain", "host.foreign_file", "host.other_site"})
"""What stands there belongs to somebody else, so there is nothing of ours to take back."""


class Walk:
    """Raises Suspended where it leaves the operation to a later attempt."""

    def __init__(self, progress: Progress, steps: Mapping[str, Step], context: Context) -> None:
        """``steps``: by name."""
        self._progress = progress
        self._steps = steps
        self._context = context

    def run(self) -> None:
        if self._progress.operation.state == "running":
            self._forward()
        if self._progress.operation.state == "undoing":
            self._backward()

    def _forward(self) -> None:
        progress, context = self._progress, self._context
        begun_before = self._begun_before()
        left = [at for at, record in enumerate(progress.operation.steps) if record.state != "done"]
        for position in left:
            progress.position = position
            progress.leave_if_stopping()
            again = position in begun_before
            context.begins(again=again)
            try:
                if again or progress.step.state == "pending":
                    self._begin_again()
                progress.leave_if_cancelled()
                if position == left[0]:
                    progress.wait_if_away(context)
                message = progress.retry(context, self._steps[progress.step.name].do)
            except VgpuctlError as error:
                leave_while_database_is_away(error)
                self._failed(error)
                return
            self._done(message)
        if progress.operation.state == "running":  # an older version wrote the operation's end in a commit of its own
            self._ended("done")

    def _begun_before(self) -> frozenset[int]:
        """Steps that an earlier attempt has begun: the one where it left, several of an older version."""
        operation = self._progress.operation
        begun = frozenset(at for at, record in enumerate(operation.steps) if record.state != "pending")
        return begun - {0} if operation.attempt == 1 else begun

    def _begin_again(self) -> None:
        record = self._progress.step
        if record.state == "failed":  # an older version was killed between the failure and the decision about it
            raise Unknown("operation.interrupted", record.message)
        self._progress.advance(self._context, [Move(self._progress.position, "running", "")])

    def _done(self, message: str) -> None:
        progress = self._progress
        moves, following = [Move(progress.position, "done", message)], progress.position + 1
        if following == len(progress.operation.steps):
            self._ended("done", moves)
            return
        if not progress.stopping():
            moves.append(Move(following, "running", ""))
        progress.advance(self._context, moves)

    def _ended(self, state: Literal["done", "undone"], moves: Sequence[Move] = ()) -> None:
        progress, warnings, writes = self._progress, tuple(self._context.warnings), self._context.take_writes()
        progress.is_now(progress.journal.ended(progress.operation, state, warnings, moves, writes))

    def _failed(self, error: VgpuctlError) -> None:
        """Also when the agent says that a newer attempt has been there: if that is so, nothing can be written here and
        this run ends; if not, the host obeys nobody any more, and only a person can say why."""
        progress, position = self._progress, self._progress.position
        moves = [Move(position, "failed", error.message)] if progress.step.state == "running" else []
        onward = progress.definition.only_forward(progress.operation) and not self._nothing_done(error)
        if onward or is_restored(progress.operation):
            self._stuck(error, moves)
        else:
            moves += [Move(position, "undoing")] if moves else []
            progress.is_now(progress.journal.undoing(progress.operation, moves, position, error))

    def _nothing_done(self, error: VgpuctlError) -> bool:
        """Whether an operation that only goes forward failed before its first effect."""
        before = self._progress.operation.steps[: self._progress.position]
        return not isinstance(error, Unknown) and all(self._steps[record.name].undo for record in before)

    def _backward(self) -> None:
        progress, context = self._progress, self._context
        context.start_over()
        over = {"pending", "undone"}
        left = [at for at, record in enumerate(progress.operation.steps) if record.state not in over]
        last = left[-1] if left else None
        while left:
            progress.position = left.pop()
            progress.leave_if_stopping()
            if progress.step.state != "undoing":
                progress.advance(context, self._begin_undo(progress.position))
            step = self._steps[progress.step.name]
            try:
                if progress.position == last:
                    progress.wait_if_away(context)
                self._undo(step)
            except VgpuctlError as error:
                leave_while_database_is_away(error)
                self._stuck(error, [Move(progress.position, "undo_failed", error.message)])
                return
            moves = [Move(progress.position, "undone", step.no_undo_reason)]
            if not left:
                self._ended("undone", moves)
            else:
                progress.advance(context, [*moves, *([] if progress.stopping() else self._begin_undo(left[-1]))])
        if progress.operation.state == "undoing":
            self._ended("undone")

    def _begin_undo(self, position: int) -> list[Move]:
        if self._progress.operation.steps[position].state == "running":
            return [Move(position, "failed", "interrupted"), Move(position, "undoing")]
        return [Move(position, "undoing")]

    def _undo(self, step: Step) -> None:
        if step.undo is None:
            return
        try:
            self._progress.retry(self._context, step.undo)
        except Conflict as error:
            if error.code not in _NOT_OURS:
                raise

    def _stuck(self, error: VgpuctlError, moves: Sequence[Move]) -> None:
        progress = self._progress
        self._context.start_over()
        progress.definition.stuck(self._context)
        remainder = progress.definition.remainder(progress.operation, self._context)
        progress.is_now(progress.journal.stuck(progress.operation, progress.position, error, remainder, moves))
