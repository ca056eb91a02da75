# SPDX-License-Identifier: Apache-2.0
"""A step and a list of steps. Both are data; walk.py alone knows how to walk them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from orchestrator.core.operation import Operation, OperationState, StepRecord
from orchestrator.core.vms.vm import WantedState
from orchestrator.operations.context import Context


def nothing(_: Context) -> tuple[str, ...]:
    """Nothing that could be left behind."""
    return ()


@dataclass(frozen=True, kw_only=True)
class Step:
    """``do`` and ``undo`` may run any number of times: already done and already gone are success."""

    name: str
    """With its version: operations that were begun with an older one can still be read."""
    title: str
    do: Callable[[Context], str | None]
    """Returns what to tell people about it, if anything."""
    undo: Callable[[Context], None] | None = None
    no_undo_reason: str | None = None
    remains: Callable[[Context], tuple[str, ...]] = nothing
    """What may be left on host or in the database when this step was begun and not undone."""

    def __post_init__(self) -> None:
        if (self.undo is None) == (self.no_undo_reason is None):
            raise ValueError(f"{self.name}: say either how to undo it or why that is not needed")


@dataclass(frozen=True, kw_only=True)
class Definition:
    """One kind of operation."""

    kind: str
    steps: tuple[Step, ...]
    abandoned: Callable[[Context], None]
    """The operator has cleaned up by hand: set the database to that."""
    stuck: Callable[[Context], None]
    """Show in the database that the subject needs an operator."""
    leaves: WantedState | None = None
    """What is wanted of its VM from the moment it is asked for; None: what was wanted before."""
    undone_leaves: Literal["absent"] | None = None
    """``absent``: it makes its VM, so of one that was taken back nothing is wanted."""
    forward_only: bool = False
    """Once something was done there is no way back, only on: a failure is stuck until it is tried again."""

    no_return: Step | None = None
    """Once this step is done it only goes forward as well."""

    found_done: str | None = None
    """Code of the error with which its undo finds that it had been done: then there is neither a way back nor anything
    to abandon."""

    waits_for_host: bool = True
    """Begun, it waits while its host is out of reach. False: whoever asked for it is told at once."""

    def records(self) -> tuple[StepRecord, ...]:
        """The list as a new operation's journal begins."""
        return tuple(StepRecord(name=step.name, title=step.title, state="pending") for step in self.steps)

    def only_forward(self, operation: Operation) -> bool:
        """Whether there is no way back from where it stands."""
        committed = "" if self.no_return is None else self.no_return.name
        return self.forward_only or any(step.name == committed and step.state == "done" for step in operation.steps)

    def remainder(self, operation: Operation, context: Context) -> tuple[str, ...]:
        """What its steps may leave behind as it stands, for people."""
        over = {"done"} if self.only_forward(operation) else {"pending", "undone"}
        begun = {record.name for record in operation.steps if record.state not in over}
        return tuple(thing for step in self.steps if step.name in begun for thing in step.remains(context))

    def is_found_done(self, operation: Operation) -> bool:
        """Whether it is stuck because its step of no return was undone too late."""
        return self.found_done is not None and (operation.error or {}).get("stuck_by") == self.found_done

    def removed(self, state: OperationState) -> bool:
        """Whether nothing of its VM is wanted once it has ended so."""
        return (self.leaves if state == "done" else self.undone_leaves if state == "undone" else None) == "absent"
