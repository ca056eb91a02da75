# SPDX-License-Identifier: Apache-2.0
"""The one workflow: walks any operation's steps on, or back, from wherever its journal says it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from orchestrator.core.errors import Bug, Conflict, Denied, Retryable, Stuck, Unknown, VgpuctlError
from orchestrator.core.operation import Operation
from orchestrator.operations.context import Context, World
from orchestrator.operations.fencing import Suspended
from orchestrator.operations.journal import Journal
from orchestrator.operations.retrying import retry
from orchestrator.operations.step import Definition, Step

STALE = "agent.stale_token"
_NOT_OURS = frozenset({"vgpu.foreign", "vm.foreign_domain", "host.foreign_file", "host.other_site"})
"""What stands there belongs to somebody else, so there is nothing of ours to take back."""


class Runner:
    """Stateless: everything it knows is in the journal."""

    def __init__(self, world: World, journal: Journal, definitions: Mapping[str, Definition]) -> None:
        self._world = world
        self._journal = journal
        self._definitions = definitions
        self._steps = {step.name: step for definition in definitions.values() for step in definition.steps}

    def run(self, operation_id: str, stopping: Callable[[], bool] = lambda: False) -> None:
        """Walk until the operation has ended, or until ``stopping`` between two steps."""
        job = self._journal.take_up(operation_id)
        if job is None:
            return
        walk = _Walk(self._world, self._journal, self._definitions, self._steps, stopping)
        try:
            walk.run(Context.of(self._world, job, walk.note, walk.pause), job.operation)
        except Suspended:
            return

    def broken(self, operation_id: str, cause: BaseException) -> None:
        """Our own code failed while it ran: an operator must look, nothing is released."""
        error = Bug("bug", f"unexpected {type(cause).__name__}", details=repr(cause))
        with self._world.store.read() as tx:
            operation = tx.operations.get(operation_id).operation
        begun = tuple(record.title for record in operation.steps if record.state not in {"pending", "undone"})
        self._journal.stuck(operation, 0, error, tuple(f"unknown, from step: {title}" for title in begun))


class _Walk:
    def __init__(
        self,
        world: World,
        journal: Journal,
        definitions: Mapping[str, Definition],
        steps: Mapping[str, Step],
        stopping: Callable[[], bool],
    ) -> None:
        self._world = world
        self._journal = journal
        self._definitions = definitions
        self._steps = steps
        self._stopping = stopping
        self._operation: Operation
        self._position = 0

    def note(self, message: str) -> None:
        self._journal.note(self._operation, self._position, message)

    def pause(self, seconds: float) -> None:
        """Between two polls of a step that waits: nobody has to wait with it who wants the operation to end."""
        self._suspend_if_stopping()
        self._leave_if_cancelled()
        self._world.clock.sleep(seconds)

    def run(self, context: Context, operation: Operation) -> None:
        self._operation = operation
        definition = self._definitions.get(operation.kind)
        unknown = [record.name for record in operation.steps if record.name not in self._steps]
        if definition is None or unknown:
            error = Stuck(
                "operation.unknown_step",
                f"this version of vgpuctl does not know {', '.join(unknown) or operation.kind}",
                hint="run it with the version that began it, or abandon it after cleaning up by hand",
            )
            self._journal.stuck(operation, 0, error, tuple(record.title for record in operation.steps))
            return
        if operation.state == "running":
            self._forward(context, definition)
        if self._operation.state == "undoing":
            self._backward(context, definition)

    def _forward(self, context: Context, definition: Definition) -> None:
        for position, record in enumerate(self._operation.steps):
            if record.state == "done":
                continue
            self._position = position
            self._suspend_if_stopping()
            try:
                message = self._do(context, self._steps[record.name])
            except VgpuctlError as error:
                self._failed(context, definition, error)
                return
            self._operation = self._journal.step(self._operation, position, "done", message)
        self._operation = self._journal.ended(self._operation, "done", tuple(context.warnings))

    def _do(self, context: Context, step: Step) -> str:
        record = self._operation.steps[self._position]
        if record.state == "failed":  # a crash came between the failure and the decision about it
            raise Unknown("operation.interrupted", record.message)
        # Written down first: also the first step has something to undo, what was stored with the operation itself.
        self._operation = self._journal.step(self._operation, self._position, "running")
        self._leave_if_cancelled()
        return self._retry(context, step, step.do)

    def _leave_if_cancelled(self) -> None:
        forward_only = self._definitions[self._operation.kind].forward_only
        if not forward_only and self._journal.is_cancelled(self._operation.id):
            raise Conflict(
                "operation.cancelled", "it was cancelled", hint="run the command again when it is wanted after all"
            )

    def _failed(self, context: Context, definition: Definition, error: VgpuctlError) -> None:
        if error.code == STALE and isinstance(error, Denied):
            raise Suspended
        if self._operation.steps[self._position].state == "running":
            self._operation = self._journal.step(self._operation, self._position, "failed", error.message)
        if definition.forward_only and not self._nothing_done(error):
            self._stuck(context, definition, error)
        else:
            self._operation = self._journal.undoing(self._operation, self._position, error)

    def _nothing_done(self, error: VgpuctlError) -> bool:
        """Whether a forward-only operation failed before its first effect."""
        before = self._operation.steps[: self._position]
        return not isinstance(error, Unknown) and all(self._steps[record.name].undo for record in before)

    def _backward(self, context: Context, definition: Definition) -> None:
        for position in reversed(range(len(self._operation.steps))):
            record = self._operation.steps[position]
            if record.state in {"pending", "undone"}:
                continue
            self._position = position
            self._suspend_if_stopping()
            if record.state == "running":
                self._operation = self._journal.step(self._operation, position, "failed", "interrupted")
            self._operation = self._journal.step(self._operation, position, "undoing")
            step = self._steps[record.name]
            try:
                self._undo(context, step)
            except VgpuctlError as error:
                if error.code == STALE:
                    raise Suspended from error
                self._operation = self._journal.step(self._operation, position, "undo_failed", error.message)
                self._stuck(context, definition, error)
                return
            self._operation = self._journal.step(
                self._operation, position, "undone", step.no_undo_reason or record.message
            )
        self._operation = self._journal.ended(self._operation, "undone", tuple(context.warnings))

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
                before_pause=self._suspend_if_stopping,
            )
        except (Retryable, Unknown):
            self._suspend_if_stopping()  # the stop may be why its last try failed: the next server finds out
            raise
        return message or ""

    def _stuck(self, context: Context, definition: Definition, error: VgpuctlError) -> None:
        definition.stuck(context)
        over = {"done"} if definition.forward_only else {"pending", "undone"}
        left = [record.name for record in self._operation.steps if record.state not in over]
        remainder = tuple(thing for name in left for thing in self._steps[name].remains(context))
        self._operation = self._journal.stuck(self._operation, self._position, error, remainder)

    def _suspend_if_stopping(self) -> None:
        if self._stopping():
            raise Suspended
