# SPDX-License-Identifier: Apache-2.0
"""Operations with the journal of their steps, and which of them may run now."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypedDict, Unpack

from orchestrator.core.operation import HostWait, Operation, OperationState, StepRecord, WaitState


@dataclass(frozen=True, kw_only=True)
class Job:
    """An operation with what only its execution needs."""

    operation: Operation
    inputs: dict[str, object]
    host: str
    """Name of the host it works on."""
    cancelled: bool
    revision: int
    """Grows with every change."""
    waits_for: tuple[str, ...] = ()
    """Ids of the operations that must have ended before it runs."""


@dataclass(frozen=True, kw_only=True)
class DueOperation:
    """The one operation of its subject that may run now."""

    operation: str
    subject: str
    host: str
    attempt: int
    """How many have begun."""
    kind: str = ""
    tenant: str | None = None

    @property
    def in_guest(self) -> bool:
        """It waits for a guest, which its tenant may let hang."""
        return self.kind == "provision_vm"

    @property
    def line(self) -> str:
        """Whose places it takes: the host's, or those of the tenant's runs in guests."""
        return f"guests of {self.tenant}" if self.in_guest else self.host


@dataclass(frozen=True, kw_only=True)
class BootingGuest:
    """An operation that has found its VM's guest not booted yet, in the step that has not ended since."""

    operation: str
    kind: str
    attempt: int
    vm: str
    host: str
    waits: bool
    """False: it goes on, and may wait again."""


class OperationFilter(TypedDict, total=False):
    """Which operations; all that is given must hold."""

    unfinished: bool
    states: Collection[OperationState] | None
    kind: str | None
    tenants: tuple[str, ...] | None
    """Only theirs."""
    subject: str | None
    """Only those about what has this id or had this name (``tenant/name`` of a VM)."""
    beginning: str | None
    """Of their id."""


class Operations(Protocol):
    def add(self, operation: Operation, *, host: str, inputs: dict[str, object], waits_for: Sequence[str] = ()) -> None:
        """``waits_for``: ids of operations that have to end first, whichever way they do."""

    def get(self, operation_id: str) -> Job:
        """:raises NotFound: ``operation.unknown``"""

    def take_up(self, operation_id: str, now: float) -> Job | None:
        """Begin its next attempt, older ones can write no more; None when it has ended. When none of its steps has
        begun and nobody has cancelled it, the first one begins ``now``.

        :raises NotFound: ``operation.unknown``"""

    def is_newest(self, operation_id: str, attempt: int) -> bool:
        """Whether no later attempt has begun; none begins before this transaction ends."""

    def advance(self, operation: Operation, steps: Mapping[int, StepRecord], *, whole: bool) -> bool | None:
        """Write these steps of it and, when ``whole``, its state, error, remainder, warnings and end.

        Whether it is to be cancelled; None, and nothing is written, when a later attempt has begun."""

    def turn(self) -> int:
        """The newest turn: grows with every end of an operation. What one did whose ``ended_turn`` is not greater was
        done before this was asked, whatever any clock says."""

    def revisions(self, operation_ids: Sequence[str]) -> dict[str, int]:
        """Of those that are stored."""

    def is_cancelled(self, operation_id: str) -> bool:
        """:raises NotFound: ``operation.unknown``"""

    def list(
        self, *, limit: int = 1000, before: str | None = None, **only: Unpack[OperationFilter]
    ) -> tuple[Operation, ...]:
        """Newest first; ``before``: only those after the one with this id."""

    def how_many(self, **only: Unpack[OperationFilter]) -> int:
        """Those that :meth:`list` would have without a limit."""

    def counts(self) -> dict[tuple[str, str], int]:
        """How many are stored, by kind and state."""

    def of_subject(self, subject: str) -> tuple[Operation, ...]:
        """Oldest first."""

    def stuck_about(self, subject: str) -> tuple[Operation, ...]:
        """Oldest first."""

    def stuck_on(self, host: str) -> tuple[Operation, ...]:
        """Oldest first."""

    def disown(self, tenant: str) -> None:
        """Those of the tenant are nobody's from now on."""

    def due(self, beside: Collection[str] | None = None) -> tuple[DueOperation, ...]:
        """Of every subject: the operation that has begun, else the oldest that waits. ``beside``: only of the subjects
        that operations with these ids are about.

        None of a subject whose operation waits for its host, its guest, or for another one that has not ended."""

    def missing(self, host: str) -> dict[str, HostWait]:
        """By id: the operations that have found the host out of reach and that no step of has ended since."""

    def end_wait(self, operation_id: str, state: WaitState) -> None:
        """It is due again, if it waits for its host."""

    def booting(self) -> tuple[BootingGuest, ...]:
        """Oldest first."""

    def end_guest_waits(self, operation_ids: Collection[str], state: WaitState) -> None:
        """Those of them are due again that wait for their guests."""

    def unfinished(self) -> int:
        """How many have not ended, without those that wait for their guests."""

    def update(self, operation: Operation) -> None:
        """State, attempt, error, remainder, warnings, end; not the steps."""

    def forget(self, *, ended_before: float, most: int) -> int:
        """With their steps, unless stuck, still named by a VM or a finding, or the one that ended last; how many that
        were."""

    def put_inputs(self, operation_id: str, inputs: dict[str, object]) -> None: ...
    def put_step(self, operation_id: str, position: int, step: StepRecord) -> None: ...
    def request_cancel(self, operation_id: str) -> None:
        """One that waits for its host or its guest is due, to be taken back."""
