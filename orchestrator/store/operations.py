# SPDX-License-Identifier: Apache-2.0
"""The journal: operations and their steps. Every write raises the operation's revision."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Unpack

from sqlalchemy import (
    Column,
    Select,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    select,
    tuple_,
    update,
)
from sqlalchemy.sql.functions import count

from orchestrator.core.operation import (
    FINISHED,
    UNFINISHED,
    HostWait,
    Operation,
    StepRecord,
    WaitState,
    Watched,
    unknown_operation,
)
from orchestrator.store.events import Events
from orchestrator.store.records import BootingGuest, DueOperation, Job, OperationFilter
from orchestrator.store.rows import (
    course_values,
    host_wait_of,
    operation_of,
    operation_values,
    operations_matching,
    step_of,
)
from orchestrator.store.statements import AnyRow, InClause, Precompiled, Statements
from orchestrator.store.steps import CHANGING, ITS_STEPS, added_steps, moved_steps
from orchestrator.store.tables import findings, operations, vms

# Put together once, as that takes as long as asking; what a step asks again and again. Values of an UPDATE are those
# that come with it.
_ID: Final = operations.c.id == bindparam("operation_id")
_BY_ID: Final = Precompiled(select(operations).where(_ID))
_NEWEST: Final = operations.c.attempt == bindparam("its_attempt")
_HELD: Final = Precompiled(update(operations).where(_ID, _NEWEST).values(attempt=operations.c.attempt))
"""Changes nothing: a row that it finds is the transaction's own until that ends."""
_TAKEN_UP: Final = Precompiled(
    update(operations)
    .where(_ID, operations.c.state.not_in(FINISHED))
    .values(
        attempt=operations.c.attempt + 1,
        went_on=operations.c.went_on + case((operations.c.guest_wait.is_not(None), 1), else_=0),
        revision=operations.c.revision + 1,
        state=case((operations.c.state == "queued", "running"), else_=operations.c.state),
    )
    .returning(operations)
)
_CANCELLED: Final = Precompiled(select(operations.c.cancelled).where(_ID))
_TOUCH: Final = update(operations).where(_ID).values(revision=operations.c.revision + 1)
_TOUCHED: Final = Precompiled(_TOUCH.returning(operations.c.host))
_ADVANCE: Final = _TOUCH.where(_NEWEST).returning(*(operations.c[name] for name in ("cancelled", "revision", "host")))
_ADVANCED: Final = Precompiled(_ADVANCE)
_NEWEST_TURN: Final = select(func.coalesce(func.max(operations.c.ended_turn), 0))
_LAST_TURN: Final = Precompiled(_NEWEST_TURN)
_NEXT_TURN: Final = {"ended_turn": _NEWEST_TURN.scalar_subquery() + 1}
"""Two that end beside each other may get the same: who reads it began after both had done all they did."""
_ENDED: Final = Precompiled(_ADVANCE.values(_NEXT_TURN))
_TOUCHED_AT_END: Final = Precompiled(_TOUCH.values(_NEXT_TURN).returning(operations.c.host))
_OF_SUBJECT: Final = operations.alias("of_subject")
_NUMBER: Final = (
    select(func.coalesce(func.max(_OF_SUBJECT.c.number), 0) + 1)
    .where(_OF_SUBJECT.c.subject == bindparam("its_subject"))
    .scalar_subquery()
)
_ADD: Final = Precompiled(insert(operations).values(number=_NUMBER))
_IN_TURN: Final = (
    select(
        *(operations.c[name] for name in ("id", "subject", "host", "attempt", "kind", "tenant")),
        *(operations.c[name] for name in ("waits_for", "host_wait", "guest_wait")),
        func.coalesce(*(operations.c.inputs[name].as_string() for name in ("disk_of", "backup")))
        .is_not(None)
        .label("copies_disk"),
    )
    .where(operations.c.state.in_(UNFINISHED))
    .order_by(
        case((operations.c.state == "queued", 1), else_=0),
        operations.c.number,
        operations.c.created_at,
        operations.c.id,
    )
)
"""Those that have begun first."""
_UNFINISHED: Final = Precompiled(_IN_TURN)
_UNFINISHED_BESIDE: Final = InClause(
    lambda ids: _IN_TURN.where(operations.c.subject.in_(select(_OF_SUBJECT.c.subject).where(_OF_SUBJECT.c.id.in_(ids))))
)
_BY_AGE: Final = (operations.c.created_at, operations.c.id)
_HOW_MANY: Final = Precompiled(
    select(count())
    .select_from(operations)
    .where(operations.c.state.in_(UNFINISHED), func.coalesce(operations.c.guest_wait, "") != "waiting")
)
_BOOTING: Final = Precompiled(
    select(
        operations.c.id.label("operation"),
        operations.c.subject.label("vm"),
        (operations.c.guest_wait == "waiting").label("waits"),
        *(operations.c[name] for name in ("kind", "attempt", "host")),
    )
    .where(operations.c.guest_wait.is_not(None))
    .order_by(*_BY_AGE)
)
_STUCK: Final = select(operations).where(operations.c.state == "stuck").order_by(*_BY_AGE)
_STUCK_ABOUT: Final = Precompiled(_STUCK.where(operations.c.subject == bindparam("its_subject")))
_STUCK_ON: Final = Precompiled(_STUCK.where(operations.c.host == bindparam("its_host")))
_STEP_ENDED: Final = {"done", "failed", "undone", "undo_failed"}


class Operations:
    """Operations with the journal of their steps, and which of them may run now."""

    def __init__(self, connection: Statements, events: Events) -> None:
        self._db = connection
        self._events = events
        self.changed: dict[str, Watched | None] = {}
        """What this transaction has changed, as it is now; None: it has to be read."""

    def add(self, operation: Operation, *, host: str, inputs: dict[str, object], waits_for: Sequence[str] = ()) -> None:
        """``waits_for``: ids of operations that have to end first, whichever way they do."""
        only_here = {"host": host, "inputs": inputs, "waits_for": list(waits_for) or None}
        fresh = {"cancelled": False, "revision": 1, "its_subject": operation.subject}
        self._db.execute(_ADD, {**operation_values(operation), **only_here, **fresh})
        rows = ({"operation": operation.id, "position": at, **vars(step)} for at, step in enumerate(operation.steps))
        values = {f"{name}_{at}": value for at, row in enumerate(rows) for name, value in row.items()}
        self._db.execute(added_steps(len(operation.steps)), values)
        self._note(operation, host, "accepted")

    def get(self, operation_id: str) -> Job:
        """:raises NotFound: ``operation.unknown``"""
        row = self._db.execute(_BY_ID, {"operation_id": operation_id}).one_or_none()
        if row is None:
            raise unknown_operation(operation_id)
        return self._job(row)

    def _job(self, row: AnyRow) -> Job:
        return Job(
            operation=operation_of(row, self._steps_of(row.id)),
            inputs=row.inputs,
            host=row.host,
            cancelled=row.cancelled,
            revision=row.revision,
            waits_for=tuple(row.waits_for or ()),
        )

    def turn(self) -> int:
        """The newest. What an operation did whose turn is not greater was done before this was asked."""
        return int(self._db.execute(_LAST_TURN).scalar_one())

    def revisions(self, operation_ids: Sequence[str]) -> dict[str, int]:
        """Of those that are stored."""
        query = select(operations.c.id, operations.c.revision).where(operations.c.id.in_(operation_ids))
        return {row.id: row.revision for row in self._db.execute(query)}

    def is_cancelled(self, operation_id: str) -> bool:
        """:raises NotFound: ``operation.unknown``"""
        row = self._db.execute(_CANCELLED, {"operation_id": operation_id}).one_or_none()
        if row is None:
            raise unknown_operation(operation_id)
        return bool(row.cancelled)

    def take_up(self, operation_id: str, now: float) -> Job | None:
        """Begin its next attempt, older ones can write no more; None when it has ended. When none of its steps has
        begun and nobody has cancelled it, the first one begins ``now``.

        :raises NotFound: ``operation.unknown``"""
        row = self._db.execute(_TAKEN_UP, {"operation_id": operation_id}).one_or_none()
        if row is None:
            self.get(operation_id)
            return None
        job = self._begun(self._job(row), now)
        self.changed[operation_id] = Watched(operation=job.operation, revision=job.revision)
        self._note(job.operation, job.host, "state")
        return job

    def _begun(self, job: Job, now: float) -> Job:
        first, *others = job.operation.steps
        if (
            job.operation.state != "running"
            or job.cancelled
            or {step.state for step in job.operation.steps} != {"pending"}
        ):
            return job
        begun = replace(first, state="running", started_at=now)
        self._put_steps(job.operation.id, {0: begun})
        return replace(job, operation=replace(job.operation, steps=(begun, *others)))

    def is_newest(self, operation_id: str, attempt: int) -> bool:
        """Whether no later attempt has begun; none begins before this transaction ends."""
        return self._db.execute(_HELD, {"operation_id": operation_id, "its_attempt": attempt}).rowcount == 1

    def advance(self, operation: Operation, moved: Mapping[int, StepRecord], *, whole: bool) -> bool | None:
        """Write these steps of it and, when ``whole``, its state, error, remainder, warnings and end.

        Whether it is to be cancelled; None, and nothing is written, when a later attempt has begun."""
        values = course_values(operation) if whole else {}
        held = {"operation_id": operation.id, "its_attempt": operation.attempt}
        ends = whole and operation.state in FINISHED
        row = self._db.execute(_ENDED if ends else _ADVANCED, {**held, **values}).one_or_none()
        if row is None:
            return None
        written = tuple(moved.get(at, step) for at, step in enumerate(operation.steps))
        self.changed[operation.id] = Watched(operation=replace(operation, steps=written), revision=row.revision)
        if moved:
            self._put_steps(operation.id, moved)
        for step in moved.values():
            if step.state in _STEP_ENDED:
                self._note(operation, row.host, "step", step=step.name, step_state=step.state)
        if whole:
            self._note(operation, row.host, "state")
        return bool(row.cancelled)

    def _note(self, operation: Operation, host: str, change: str, **details: str) -> None:
        error = None if operation.error is None else str(operation.error["code"])
        waits = "host" if operation.host_wait is not None and operation.host_wait.state == "waiting" else None
        if waits is None and operation.guest_wait == "waiting":
            waits = "guest"
        self._events.note(
            "operation", operation.id, change, tenant=operation.tenant, host=host, subject=operation.subject_name,
            state=operation.state, kind=operation.kind, error=error, waits_for=waits, **details,
        )  # fmt: skip

    def list(
        self,
        *,
        limit: int = 1000,
        before: str | None = None,
        sort: str = "-created_at",
        **only: Unpack[OperationFilter],
    ) -> tuple[Operation, ...]:
        """By the column ``sort``, which has no nulls, ``-``: the other way round; ``before``: only those after the one
        with this id."""
        column, backwards = operations.c[sort.removeprefix("-")], sort.startswith("-")
        by = (column, operations.c.id)
        query = select(operations).order_by(*(part.desc() if backwards else part for part in by)).limit(limit)
        query = query.where(*operations_matching(only))
        if before is not None:
            known = select(column).where(operations.c.id == before)
            tenants = only.get("tenants")
            if tenants is not None:  # one of others is as unknown as one that is not there
                known = known.where(operations.c.tenant.in_(tenants))
            row, last = tuple_(*by), tuple_(known.scalar_subquery(), before)
            query = query.where(row < last if backwards else row > last)
        return self._all(query)

    def how_many(self, **only: Unpack[OperationFilter]) -> int:
        """Those that :meth:`list` would have without a limit."""
        return int(
            self._db.execute(select(count()).select_from(operations).where(*operations_matching(only))).scalar_one()
        )

    def counts(self) -> dict[tuple[str, str], int]:
        """How many are stored, by kind and state."""
        kind, state = operations.c.kind, operations.c.state
        rows = self._db.execute(select(kind, state, count().label("stored")).group_by(kind, state))
        return {(row.kind, row.state): row.stored for row in rows}

    def of_subject(self, subject: str) -> tuple[Operation, ...]:
        """Oldest first."""
        return self._all(select(operations).where(operations.c.subject == subject).order_by(*_BY_AGE))

    def stuck_about(self, subject: str) -> tuple[Operation, ...]:
        """Oldest first."""
        return self._all(_STUCK_ABOUT, {"its_subject": subject})

    def stuck_on(self, host: str) -> tuple[Operation, ...]:
        """Oldest first."""
        return self._all(_STUCK_ON, {"its_host": host})

    def disown(self, tenant: str) -> None:
        """Those of the tenant are nobody's from now on."""
        self._db.execute(update(operations).where(operations.c.tenant == tenant).values(tenant=None))

    def due(self, beside: Collection[str] | None = None) -> tuple[DueOperation, ...]:
        """Of every subject: the operation that has begun, else the oldest that waits. ``beside``: only of the subjects
        that operations with these ids are about.

        None of a subject whose operation waits for its host, its guest, or for another one that has not ended."""
        if beside is not None and not beside:
            return ()
        rows = self._db.execute(_UNFINISHED) if beside is None else self._db.execute(*_UNFINISHED_BESIDE(beside))
        first: dict[str, Any] = {}
        for row in rows:
            first.setdefault(row.subject, row)
        open_ones = self._unfinished({other for row in first.values() for other in row.waits_for or ()})
        same = ("subject", "host", "attempt", "kind", "tenant", "copies_disk")
        return tuple(
            DueOperation(operation=row.id, **{name: getattr(row, name) for name in same})
            for row in first.values()
            if "waiting" not in {row.host_wait, row.guest_wait} and open_ones.isdisjoint(row.waits_for or ())
        )

    def missing(self, host: str) -> dict[str, HostWait]:
        """By id: the operations that have found the host out of reach and that no step of has ended since."""
        query = select(operations.c.id, operations.c.host, operations.c.host_wait, operations.c.host_wait_since)
        rows: Iterable[AnyRow] = self._db.execute(
            query.where(operations.c.host == host, operations.c.host_wait.is_not(None))
        )
        return {row.id: host_wait_of(row) for row in rows}

    def works_at(self, operation_id: str, host: str) -> None:
        """One between two hosts goes on there: that is whose answer it waits for, and where its guest boots."""
        self._db.execute(update(operations).where(operations.c.id == operation_id).values(host=host))

    def end_wait(self, operation_id: str, state: WaitState) -> None:
        """It is due again, if it waits for its host."""
        self._end_waits(operations.c.host_wait, [operation_id], state)

    def booting(self) -> tuple[BootingGuest, ...]:
        """Oldest first."""
        return tuple(BootingGuest(**row._asdict()) for row in self._db.execute(_BOOTING))

    def end_guest_waits(self, operation_ids: Collection[str], state: WaitState) -> None:
        """Those of them are due again that wait for their guests."""
        self._end_waits(operations.c.guest_wait, operation_ids, state)

    def _end_waits(self, column: Column[Any], operation_ids: Collection[str], state: WaitState) -> None:
        waiting = and_(operations.c.id.in_(operation_ids), column == "waiting")
        self.changed |= dict.fromkeys(operation_ids)
        self._db.execute(
            update(operations).where(waiting).values({column: state, "revision": operations.c.revision + 1})
        )

    def unfinished(self) -> int:
        """How many have not ended, without those that wait for their guests."""
        return int(self._db.execute(_HOW_MANY).scalar_one())

    def _unfinished(self, ids: Collection[str]) -> frozenset[str]:
        if not ids:
            return frozenset()
        query = select(operations.c.id).where(operations.c.id.in_(ids), operations.c.state.in_(UNFINISHED))
        return frozenset(self._db.execute(query).scalars())

    def update(self, operation: Operation) -> None:
        """State, attempt, error, remainder, warnings, end; not the steps."""
        self.changed[operation.id] = None
        change = _TOUCHED_AT_END if operation.state in FINISHED else _TOUCHED
        for row in self._db.execute(change, {"operation_id": operation.id, **operation_values(operation)}):
            self._note(operation, row.host, "state")

    def forget(self, *, ended_before: float, most: int) -> int:
        """With their steps, unless stuck or still named by a VM or a finding; how many that were. The one that ended
        last stays: turns go on from its."""
        named = (
            select(table.c.operation).where(table.c.operation == operations.c.id).exists() for table in (vms, findings)
        )
        old = (
            select(operations.c.id)
            .where(operations.c.state.in_(("done", "undone")), operations.c.finished_at < ended_before)
            .where(*(~name for name in named), operations.c.ended_turn < _NEWEST_TURN.scalar_subquery())
            .limit(most)
        )
        return self._db.execute(delete(operations).where(operations.c.id.in_(self._db.execute(old).scalars()))).rowcount

    def put_inputs(self, operation_id: str, inputs: dict[str, object]) -> None:
        self._db.execute(update(operations).where(operations.c.id == operation_id).values(inputs=inputs))

    def put_step(self, operation_id: str, position: int, step: StepRecord) -> None:
        self._put_steps(operation_id, {position: step})
        self._touch(operation_id)

    def _put_steps(self, operation_id: str, moved: Mapping[int, StepRecord]) -> None:
        values: dict[str, Any] = {"operation_id": operation_id}
        for at, (position, step) in enumerate(moved.items()):
            values |= {f"position_{at}": position, **{f"{name}_{at}": getattr(step, name) for name in CHANGING}}
        self._db.execute(moved_steps(len(moved)), values)

    def request_cancel(self, operation_id: str) -> None:
        """One that waits for its host or its guest is due, to be taken back."""
        self.end_wait(operation_id, "tried")
        self.end_guest_waits([operation_id], "tried")
        self._touch(operation_id, cancelled=True)

    def _touch(self, operation_id: str, **values: Any) -> None:
        self.changed[operation_id] = None
        self._db.execute(_TOUCHED, {"operation_id": operation_id, **values})

    def _all(self, query: Select[Any] | Precompiled, values: Mapping[str, str] | None = None) -> tuple[Operation, ...]:
        return tuple(operation_of(row, self._steps_of(row.id)) for row in self._db.execute(query, values).all())

    def _steps_of(self, operation_id: str) -> tuple[StepRecord, ...]:
        return tuple(step_of(row) for row in self._db.execute(ITS_STEPS, {"operation_id": operation_id}))
