# SPDX-License-Identifier: Apache-2.0
"""One attempt at one operation: step after step on, or back. One commit ends a step and begins the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from orchestrator.core.errors import DATABASE_AWAY, Conflict, NotFound, Retryable, Unknown, VgpuctlError
from orchestrator.core.operation import OUT_OF_REACH
from orchestrator.operations.context import Context, World
from orchestrator.operations.fencing import Suspended
from orchestrator.operations.journal import Journal, Move, Write, Written
from orchestrator.operations.restored import is_restored
from orchestrator.operations.retrying import retry
from orchestrator.operations.step import Definition, Step

_NOT_OURS = frozenset({"vgpu.foreign", "vm.foreign_domain", "host.foreign_file", "host.other_site"})
"""What stands there belongs to somebody else, so there is nothing of ours to take back."""
_UNREACHABLE = "host.unreachable"
_SEEN_WITHIN_S = 1.0
"""So late people may see that a quick step has ended."""


class Walk:
    """Raises Suspended where it leaves the operation to a later attempt."""

    def __init__(
        self,
        world: World,
        journal: Journal,
        definition: Definition,
        steps: Mapping[str, Step],
        taken_up: Written,
        stopping: Callable[[], bool],
    ) -> None:
        self._world = world
        self._journal = journal
        self._definition = definition
        self._steps = steps
        self._stopping = stopping
        self._operation, self._cancelled = taken_up.operation, taken_up.cancelled
        self._position = 0
        first_begun = self._operation.attempt == 1 and self._operation.steps[0].state == "running"
        self._begun = {0} if first_begun else set[int]()
        """Steps that this attempt has begun, onwards or back: in the commit that ended the one before or that took the
        operation up, or with other quick ones."""
        begun = (at for at, record in enumerate(self._operation.steps) if record.state != "pending")
        self._begun_before = frozenset(begun) - self._begun
        """Steps that an earlier attempt has begun."""
        self._ahead: set[int] = set()
        """Those of them that had never been begun before, and are not reached yet: nothing was done for them."""
        self._written_at = world.clock.monotonic()
        """When it was last written what has been done."""
        self._arrived = False
        """Whether this attempt has looked if its host can be reached."""
        self._held: tuple[list[Move], tuple[Write, ...]] = ([], ())
        """What is written together with the next step, which only writes or is quick."""

    def note(self, message: str) -> None:
        self._journal.note(self._operation, self._position, message)

    def pause(self, seconds: float) -> None:
        """Between two looks of a step that waits: nobody has to wait with it who wants the operation to end."""
        self._suspend_if_stopping()
        if not self._cancelled:
            self._cancelled = self._journal.is_cancelled(self._operation.id)
        if self._operation.state == "running":  # on its way back it is what was wanted
            self._leave_if_cancelled()
        self._world.clock.sleep(seconds)

    def wait_for_guest(self) -> None:
        """The step is begun again when the guest has booted, and holds nobody up until then. Returns when it has had
        the time that it gets."""
        if self._operation.guest_wait == "over":
            return
        self._suspend_if_stopping()
        self._write_what_is_held()
        self._is_now(self._journal.waits_for_guest(self._operation))
        self._leave_if_cancelled()
        raise Suspended

    def run(self, context: Context) -> None:
        if self._operation.state == "running":
            self._forward(context)
        if self._operation.state == "undoing":
            self._backward(context)

    def _is_now(self, written: Written) -> None:
        self._held, self._written_at = ([], ()), self._world.clock.monotonic()
        self._operation = written.operation
        self._cancelled = written.cancelled

    def _forward(self, context: Context) -> None:
        for position, record in enumerate(self._operation.steps):
            if record.state == "done":
                continue
            self._position = position
            if self._stopping():
                self._write_what_is_held()
                raise Suspended
            try:
                began, message = self._do(context, self._steps[record.name])
            except VgpuctlError as error:
                _wait_for_the_database(error)
                self._write_what_is_held()
                self._failed(context, error)
                return
            self._done(context, Move(position, "done", message, (began, self._world.clock.now())))
        if self._operation.state == "running":  # an older version wrote the operation's end in a commit of its own
            self._is_now(self._journal.ended(self._operation, "done", tuple(context.warnings)))

    def _do(self, context: Context, step: Step) -> tuple[float, str]:
        """When it began, and what is to be told of it."""
        record = self._operation.steps[self._position]
        if record.state == "failed":  # an older version was killed between the failure and the decision about it
            raise Unknown("operation.interrupted", record.message)
        if self._position not in self._begun:
            # Written down first: also the first step has something to undo, what was stored with the operation itself.
            self._is_now(self._journal.advance(self._operation, self._begin(self._position)))
        self._ahead.discard(self._position)
        context.begins(again=self._position in self._begun_before)
        self._leave_if_cancelled()
        self._wait_if_away(context)
        began = self._world.clock.now()
        if self._operation.guest_wait is not None:  # it goes on in what it had begun
            began = record.started_at or began
        return began, self._retry(context, step, step.do)

    def _done(self, context: Context, done: Move) -> None:
        held, held_writes = self._held
        moves, following = [*held, done], self._position + 1
        writes = (*held_writes, *context.take_writes())
        if following == len(self._operation.steps):
            self._is_now(self._journal.ended(self._operation, "done", tuple(context.warnings), moves, writes))
            return
        if self._may_be_held(following) and not writes:
            self._held = moves, ()
            return
        if self._operation.steps[following].state == "pending" and not self._stopping():
            moves += self._begin(following)
            if self._steps[self._operation.steps[following].name].only_writes:
                self._held = moves, writes
                return
        self._is_now(self._journal.advance(self._operation, moves, writes))
        if writes:
            context.read_again()

    def _begin(self, first: int) -> list[Move]:
        """With the quick ones after it, if it is one."""
        steps, last = self._operation.steps, first
        while self._steps[steps[last].name].quick and last + 1 < len(steps):
            following = steps[last + 1]
            if not self._steps[following.name].quick or following.state not in {"pending", "running"}:
                break
            last += 1
        begun = range(first, last + 1)
        self._begun.update(begun)
        self._ahead.update(at for at in begun if steps[at].state == "pending")
        return [Move(position, "running", "") for position in begun]

    def _may_be_held(self, following: int) -> bool:
        """Whether the end of a step can wait until the quick one after it has ended: people look on."""
        soon = self._world.clock.monotonic() - self._written_at < _SEEN_WITHIN_S
        return following in self._begun and soon and not self._stopping()

    def _write_what_is_held(self) -> None:
        """What was done; and that nothing is begun that is only ahead. What an earlier attempt had begun stays so: it
        may have been done."""
        moves, writes = self._held
        if moves or self._ahead:
            moves = [*moves, *(Move(at, "pending", "") for at in sorted(self._ahead))]
            self._begun.difference_update(self._ahead)
            self._ahead.clear()
            self._is_now(self._journal.advance(self._operation, moves, writes))

    def _leave_if_cancelled(self) -> None:
        if self._cancelled and not (self._definition.forward_only or is_restored(self._operation)):
            raise Conflict(
                "operation.cancelled", "it was cancelled", hint="run the command again when it is wanted after all"
            )

    def _failed(self, context: Context, error: VgpuctlError) -> None:
        """Also when the agent says that a newer attempt has been there: if that is so, nothing can be written here and
        this run ends; if not, the host obeys nobody any more, and only a person can say why."""
        running = self._operation.steps[self._position].state == "running"
        moves = [Move(self._position, "failed", error.message)] if running else []
        onward = self._definition.forward_only and not self._nothing_done(error)
        if onward or is_restored(self._operation):
            self._stuck(context, error, moves)
        else:
            self._is_now(self._journal.undoing(self._operation, moves, self._position, error))

    def _nothing_done(self, error: VgpuctlError) -> bool:
        """Whether a forward-only operation failed before its first effect."""
        before = self._operation.steps[: self._position]
        return not isinstance(error, Unknown) and all(self._steps[record.name].undo for record in before)

    def _backward(self, context: Context) -> None:
        context.start_over()
        self._begun.clear()
        left = [at for at, record in enumerate(self._operation.steps) if record.state not in {"pending", "undone"}]
        while left:
            self._position = left.pop()
            self._suspend_if_stopping()
            if self._operation.steps[self._position].state != "undoing" or self._position not in self._begun:
                self._is_now(self._journal.advance(self._operation, self._begin_undo(self._position)))
            step = self._steps[self._operation.steps[self._position].name]
            try:
                self._wait_if_away(context)
                self._undo(context, step)
            except VgpuctlError as error:
                _wait_for_the_database(error)
                self._stuck(context, error, [Move(self._position, "undo_failed", error.message)])
                return
            self._undone(context, step, left)
        if self._operation.state == "undoing":
            self._is_now(self._journal.ended(self._operation, "undone", tuple(context.warnings)))

    def _begin_undo(self, position: int) -> list[Move]:
        if self._operation.steps[position].state == "running":
            return [Move(position, "failed", "interrupted"), Move(position, "undoing")]
        return [Move(position, "undoing")]

    def _undone(self, context: Context, step: Step, left: list[int]) -> None:
        moves, writes = [Move(self._position, "undone", step.no_undo_reason)], context.take_writes()
        if not left:
            self._is_now(self._journal.ended(self._operation, "undone", tuple(context.warnings), moves, writes))
            return
        if not self._stopping():
            moves += self._begin_undo(left[-1])
            self._begun.add(left[-1])
        self._is_now(self._journal.advance(self._operation, moves, writes))
        if writes:
            context.read_again()

    def _undo(self, context: Context, step: Step) -> None:
        if step.undo is None:
            return
        try:
            self._retry(context, step, step.undo)
        except Conflict as error:
            if error.code not in _NOT_OURS:
                raise

    def _retry(self, context: Context, step: Step, effect: Callable[[Context], str | None]) -> str:
        try:
            message = retry(
                lambda: effect(context),
                observe=context.observe if step.observe_first else lambda: None,
                clock=self._world.clock,
                limits=self._world.limits,
                before_pause=lambda: self._between_tries(context),
            )
        except (Retryable, Unknown) as error:
            self._suspend_if_stopping()  # the stop may be why its last try failed: the next server finds out
            self._leave_to_others(context, error)
            if error.code in OUT_OF_REACH and self._may_wait():
                self._wait(context, error.message)
            raise
        return message or ""

    def _leave_to_others(self, context: Context, error: VgpuctlError) -> None:
        """Another controller may reach the host: it goes on here."""
        name = self._world.controller
        if error.code != _UNREACHABLE or not name:
            return
        with context.world.store.begin() as tx:
            others = tx.controllers.miss(name, context.host_name)
        if others:
            self._write_what_is_held()
            raise Suspended

    def _between_tries(self, context: Context) -> None:
        self._suspend_if_stopping()
        self._write_what_is_held()
        context.start_over()
        self._arrived = False
        self._wait_if_away(context)

    def _may_wait(self) -> bool:
        wait = self._operation.host_wait
        return self._definition.waits_for_host and (wait is None or wait.state != "over")

    def _wait_if_away(self, context: Context) -> None:
        """Where the last look has not reached the host, nobody else needs to try."""
        if self._arrived or not self._may_wait():
            return
        self._arrived = True
        try:
            host = context.host()
        except NotFound:
            return
        if host.state == "unreachable":
            self._wait(context, host.state_reason or "it does not answer")

    def _wait(self, context: Context, why: str) -> None:
        """:raises Suspended: the next attempt goes on here; :raises Conflict: it was cancelled meanwhile"""
        self._write_what_is_held()
        state = self._operation.steps[self._position].state
        said = f"waits for host {context.host_name}: {why}"
        moves = [Move(self._position, state, said)] if state in {"running", "undoing"} else []
        self._is_now(self._journal.waits(self._operation, moves, context.host_name))
        if self._operation.state == "running":
            self._leave_if_cancelled()
        raise Suspended

    def _stuck(self, context: Context, error: VgpuctlError, moves: list[Move]) -> None:
        context.start_over()
        self._definition.stuck(context)
        over = {"done"} if self._definition.forward_only else {"pending", "undone"}
        left = [record.name for record in self._operation.steps if record.state not in over]
        remainder = tuple(thing for name in left for thing in self._steps[name].remains(context))
        self._is_now(self._journal.stuck(self._operation, self._position, error, remainder, moves))

    def _suspend_if_stopping(self) -> None:
        if self._stopping():
            raise Suspended


def _wait_for_the_database(error: VgpuctlError) -> None:
    """Nothing is wrong with the operation: the next attempt goes on where this one ends."""
    if error.code in DATABASE_AWAY:
        raise error
