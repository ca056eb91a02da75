# SPDX-License-Identifier: Apache-2.0
"""Where one attempt at an operation is, and what makes it leave there: a stop, a cancel, a host that is away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from orchestrator.core.errors import DATABASE_AWAY, Conflict, NotFound, Retryable, Unknown, VgpuctlError
from orchestrator.core.operation import OUT_OF_REACH, Operation, StepRecord
from orchestrator.operations.context import Context, Limits, World
from orchestrator.operations.journal import Journal, Move, Suspended, Written
from orchestrator.operations.restored import is_restored
from orchestrator.operations.step import Definition
from orchestrator.ports.clock import Clock

_UNREACHABLE = "host.unreachable"


class Progress:
    """Raises Suspended where it leaves the operation to a later attempt."""

    def __init__(
        self, world: World, journal: Journal, definition: Definition, taken_up: Written, stopping: Callable[[], bool]
    ) -> None:
        self.journal = journal
        self.definition = definition
        self.stopping = stopping
        self.position = 0
        self._world = world
        self._operation, self._cancelled = taken_up.operation, taken_up.cancelled

    @property
    def operation(self) -> Operation:
        """As the journal has it."""
        return self._operation

    @property
    def step(self) -> StepRecord:
        return self._operation.steps[self.position]

    def is_now(self, written: Written) -> None:
        self._operation, self._cancelled = written.operation, written.cancelled

    def advance(self, context: Context, moves: Sequence[Move]) -> None:
        """In one commit with what the step that ends has to say in the database."""
        writes = context.take_writes()
        self.is_now(self.journal.advance(self._operation, moves, writes))
        if writes:
            context.read_again()

    def note(self, message: str) -> None:
        self.journal.note(self._operation, self.position, message)

    def pause(self, seconds: float) -> None:
        """Between two looks of a step that waits: nobody has to wait with it who wants the operation to end."""
        self.leave_if_stopping()
        if not self._cancelled:
            self._cancelled = self.journal.is_cancelled(self._operation.id)
        if self._operation.state == "running":  # on its way back it is what was wanted
            self.leave_if_cancelled()
        self._world.clock.sleep(seconds)

    def wait_for_guest(self) -> None:
        """The step is begun again when the guest has booted, and holds nobody up until then. Returns when it has had
        the time that it gets."""
        if self._operation.guest_wait == "over":
            return
        self.leave_if_stopping()
        self.is_now(self.journal.waits_for_guest(self._operation))
        self.leave_if_cancelled()
        raise Suspended

    def leave_if_stopping(self) -> None:
        if self.stopping():
            raise Suspended

    def leave_if_cancelled(self) -> None:
        onward = self.definition.only_forward(self._operation)
        if self._cancelled and not (onward or is_restored(self._operation)):
            raise Conflict(
                "operation.cancelled", "it was cancelled", hint="run the command again when it is wanted after all"
            )

    def wait_if_away(self, context: Context) -> None:
        """Where the last look has not reached the host, nobody else needs to try."""
        if not self._may_wait():
            return
        try:
            host = context.host()
        except NotFound:
            return
        if host.state == "unreachable":
            self._wait(host.name, host.state_reason or "it does not answer")

    def retry(self, context: Context, effect: Callable[[Context], str | None]) -> str:
        """What a step's ``do`` or ``undo`` says, tried again as often as it is worth."""
        try:
            message = retry(
                lambda: effect(context),
                observe=context.observe_after_lost_answer,
                clock=self._world.clock,
                limits=self._world.limits,
                before_pause=lambda: self._between_tries(context),
            )
        except (Retryable, Unknown) as error:
            self.leave_if_stopping()  # the stop may be why its last try failed: the next server finds out
            host = error.at_host or context.host_name
            self._leave_to_others(host, error)
            if error.code in OUT_OF_REACH and self._may_wait():
                self._wait(host, error.message)
            raise
        return message or ""

    def _between_tries(self, context: Context) -> None:
        self.leave_if_stopping()
        context.start_over()
        self.wait_if_away(context)

    def _leave_to_others(self, host: str, error: VgpuctlError) -> None:
        """Another controller may reach the host: it goes on here."""
        name = self._world.controller
        if error.code != _UNREACHABLE or not name:
            return
        with self._world.store.begin() as tx:
            others = tx.controllers.miss(name, host)
        if others:
            raise Suspended

    def _may_wait(self) -> bool:
        wait = self._operation.host_wait
        return self.definition.waits_for_host and (wait is None or wait.state != "over")

    def _wait(self, host: str, why: str) -> None:
        """:raises Suspended: the next attempt goes on here; :raises Conflict: it was cancelled meanwhile"""
        state = self.step.state
        message = f"waits for host {host}: {why}"
        moves = [Move(self.position, state, message)] if state in {"running", "undoing"} else []
        self.is_now(self.journal.waits(self._operation, moves, host))
        if self._operation.state == "running":
            self.leave_if_cancelled()
        raise Suspended


def leave_while_database_is_away(error: VgpuctlError) -> None:
    """Nothing is wrong with the operation: the next attempt goes on where this one ends."""
    if error.code in DATABASE_AWAY:
        raise error


T = TypeVar("T")


def retry(
    effect: Callable[[], T],
    *,
    observe: Callable[[], object],
    clock: Clock,
    limits: Limits,
    before_pause: Callable[[], None],
) -> T:
    """What ``effect`` returns, tried again after Retryable and after Unknown.

    ``before_pause`` may raise to leave. Each further try observes the host first where an answer of it was lost.
    Effects are idempotent, so doing again is what decides between *it happened* and *it did not*.
    """
    pause = limits.first_pause
    unknown = False
    for tries_left in reversed(range(limits.tries)):
        try:
            observe()
            return effect()
        except (Retryable, Unknown) as error:
            unknown = unknown or isinstance(error, Unknown)
            if not tries_left:
                raise _most_telling(error, unknown=unknown) from error
        before_pause()
        clock.sleep(pause)
        pause *= 2
    raise AssertionError("limits.tries is at least 1")


def _most_telling(error: VgpuctlError, *, unknown: bool) -> VgpuctlError:
    """An effect whose answer was lost once stays unknown, even when the last try could not reach the host."""
    if not unknown or isinstance(error, Unknown):
        return error
    telling = Unknown(error.code, error.message, hint=error.hint, details=error.details, reasons=error.reasons)
    telling.at_host = error.at_host
    return telling
