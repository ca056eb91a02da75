# SPDX-License-Identifier: Apache-2.0
"""The one workflow: walks any operation's steps on, or back, from wherever its journal says it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from orchestrator.core.errors import Bug, Stuck
from orchestrator.core.operation import Operation
from orchestrator.operations.context import Context, World
from orchestrator.operations.journal import Journal, Suspended, Written
from orchestrator.operations.progress import Progress
from orchestrator.operations.step import Definition
from orchestrator.operations.walk import Walk


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
        definition = self._definition_of(job.operation)
        if definition is None:
            return
        taken_up = Written(job.operation, job.cancelled)
        progress = Progress(self._world, self._journal, definition, taken_up, stopping)
        context = Context.of(self._world, job, progress.note, progress.pause, progress.wait_for_guest)
        try:
            Walk(progress, self._steps, context).run()
        except Suspended:
            return

    def _definition_of(self, operation: Operation) -> Definition | None:
        """None: it is stuck until a version runs it that knows its steps."""
        definition = self._definitions.get(operation.kind)
        unknown = [record.name for record in operation.steps if record.name not in self._steps]
        if definition is not None and not unknown:
            return definition
        error = Stuck(
            "operation.unknown_step",
            f"this version of vgpuctl does not know {', '.join(unknown) or operation.kind}",
            hint="run it with the version that began it, or abandon it after cleaning up by hand",
        )
        self._journal.stuck(operation, 0, error, tuple(record.title for record in operation.steps))
        return None

    def broken(self, operation_id: str, cause: BaseException) -> None:
        """Our own code failed while it ran: an operator must look, nothing is released."""
        error = Bug("bug", f"unexpected {type(cause).__name__}", details=repr(cause))
        with self._world.store.read() as tx:
            operation = tx.operations.get(operation_id).operation
        begun = tuple(record.title for record in operation.steps if record.state not in {"pending", "undone"})
        self._journal.stuck(operation, 0, error, tuple(f"unknown, from step: {title}" for title in begun))
