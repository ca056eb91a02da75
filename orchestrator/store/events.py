# SPDX-License-Identifier: Apache-2.0
"""The log of what happened: written in the transaction that makes the change, read in order.

Numbers are drawn before their transactions are committed. On PostgreSQL transactions run beside each other, so a
reader could meet a number before a lower one is there, and would never be told of that. Who wants to know what is new
therefore reads in a transaction that runs alone (``Store.begin``): then every number that was drawn is committed or
never will be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from typing import Final

from sqlalchemy import ColumnElement, bindparam, delete, func, insert, or_, select, update

from orchestrator.core.event import EventFilter, FleetChange, FleetEvent, Noun, shortened
from orchestrator.store.meta import Meta
from orchestrator.store.statements import AnyRow, Precompiled, Statements
from orchestrator.store.tables import events

_PRUNED: Final = "events_pruned"
"""The highest number that is no longer kept."""
_CHANGE: Final = ("noun", "name", "change", "tenant", "host", "subject", "state", "details")
_OWN_FIELDS: Final = ("host", "subject", "state")
_NEWEST: Final = Precompiled(select(func.coalesce(func.max(events.c.number), 0)))
_AFTER: Final = (
    select(events).where(events.c.number > bindparam("after")).order_by(events.c.number).limit(bindparam("most"))
)
_NEW: Final = Precompiled(_AFTER)
RECENT_FOLD: Final = 10
_IN_ONE: Final = 16
"""Rows of one statement at most."""
_RESTORED_STEP: Final = 2**32
"""More than is ever written between a backup and the restoring of it."""


@lru_cache
def _added(rows: int) -> Precompiled:
    """One statement for all of a transaction, as for steps of operations."""
    names = ("at", *_CHANGE)
    values = [
        {name: bindparam(f"{name}_{at}", type_=events.c[name].type) for name in names} for at in range(rows)
    ]  # fmt: skip
    return Precompiled(insert(events).values(values))


class Events:
    """What this transaction changes, and what others have."""

    def __init__(self, db: Statements) -> None:
        self._db = db
        self._meta = Meta(db)
        self._noted: list[FleetChange] = []

    def note(self, noun: Noun, name: str, change: str, *, tenant: str | None = None, **about: str | None) -> None:
        """Something changes with this transaction. ``about``: those fields of :class:`FleetChange`; all else is a
        detail, None is left out."""
        fields = {key: about.pop(key, None) for key in _OWN_FIELDS}
        details = {key: shortened(value) for key, value in about.items() if value is not None}
        self._noted.append(
            FleetChange(noun=noun, name=shortened(name), change=change, tenant=tenant, details=details, **fields)
        )

    def write(self, at: float) -> bool:
        """At the transaction's end: whether there was anything to write."""
        for start in range(0, len(self._noted), _IN_ONE):
            rows = [{"at": at, **asdict(change)} for change in self._noted[start : start + _IN_ONE]]
            values = {f"{key}_{number}": value for number, row in enumerate(rows) for key, value in row.items()}
            self._db.execute(_added(len(rows)), values)
        written, self._noted = bool(self._noted), []
        return written

    def newest(self) -> int:
        """The highest number; 0: nothing has happened. Others below it may still be missing (see above)."""
        return max(int(self._db.execute(_NEWEST).scalar_one()), self.pruned())

    def pruned(self) -> int:
        """The highest number that is no longer kept; 0: all are."""
        return self._meta.number(_PRUNED)

    def new(self, after: int, *, most: int) -> tuple[FleetEvent, ...]:
        """The first so many with higher numbers, in a transaction that runs alone."""
        return tuple(map(_event_of, self._db.execute(_NEW, {"after": after, "most": most})))

    def between(self, after: int, until: int, only: EventFilter, *, most: int) -> tuple[FleetEvent, ...]:
        """The first so many of those with higher numbers than ``after`` and none above ``until``, up to which no number
        is missing any more."""
        query = _AFTER.where(events.c.number <= until, *_matching(only))
        return tuple(map(_event_of, self._db.execute(query, {"after": after, "most": most})))

    def last(self, until: int, only: EventFilter, *, most: int) -> tuple[FleetEvent, ...]:
        """The last so many, oldest first. ``until``: as of :meth:`between`."""
        newest = select(events).where(events.c.number <= until, *_matching(only)).order_by(events.c.number.desc())
        return tuple(map(_event_of, reversed(self._db.execute(newest.limit(most)).all())))

    def tenants_of(self, noun: Noun, change: str, subject: str) -> frozenset[str]:
        """Tenants that were told so, of events that are still kept. Reads all events."""
        about = (events.c.noun == noun, events.c.change == change, events.c.subject == subject)
        return frozenset(
            self._db.execute(select(events.c.tenant).where(*about, events.c.tenant.is_not(None))).scalars()
        )

    def prune(self, *, kept: int, before: float, recent: float, most: int) -> int:
        """Forget the oldest of those that are too many or too old, at most so many; how many that were. Of those that
        happened since ``recent``, :data:`RECENT_FOLD` times as many stay: who does much pushes no others' out before
        they were read. When one happened is what its controller's clock said, so none counts as older than those
        before it."""
        too_many = min(self._beyond(kept), self._last_before(recent))
        last = max(too_many, self._last_before(before), self._beyond(RECENT_FOLD * kept))
        going = select(events.c.number).where(events.c.number <= last).order_by(events.c.number).limit(most)
        numbers: Sequence[int] = self._db.execute(going).scalars()
        if not numbers:
            return 0
        self._db.execute(delete(events).where(events.c.number <= numbers[-1]))
        self._meta.put(_PRUNED, str(numbers[-1]))
        return len(numbers)

    def _beyond(self, kept: int) -> int:
        """The number of the newest that so many are newer than; 0: there is none."""
        query = select(events.c.number).order_by(events.c.number.desc()).offset(kept).limit(1)
        return self._db.execute(query).scalar_one_or_none() or 0

    def _last_before(self, at: float) -> int:
        """The last number up to which all happened before."""
        since = self._db.execute(select(func.min(events.c.number)).where(events.c.at >= at)).scalar_one()
        return self.newest() if since is None else int(since) - 1

    def disown(self, tenant: str) -> None:
        """Those of the tenant are nobody's from now on, those of this transaction too: another one may get its name."""
        self._noted = [replace(its, tenant=None) if its.tenant == tenant else its for its in self._noted]
        self._db.execute(update(events).where(events.c.tenant == tenant).values(tenant=None))

    def skip(self) -> None:
        """The database was restored: what readers have seen since its backup was made is forgotten, and its numbers are
        not given a second time. Those that are there count as pruned."""
        newest = self.newest()
        self._db.execute(delete(events))
        beyond = newest + _RESTORED_STEP
        if self._db.connection.dialect.name == "postgresql":
            self._db.execute(select(func.setval(func.pg_get_serial_sequence("events", "number"), beyond)))
        else:
            self._db.execute(insert(events).values(number=beyond, at=0.0, noun="", name="", change="", details={}))
            self._db.execute(delete(events))
        self._meta.put(_PRUNED, str(beyond))


def _matching(only: EventFilter) -> Iterator[ColumnElement[bool]]:
    """What must hold of each."""
    if only.tenants is not None:
        yield events.c.tenant.in_(only.tenants)
    if only.nouns:
        yield events.c.noun.in_(only.nouns)
    if only.name is not None:
        yield or_(events.c.name == only.name, events.c.subject == only.name)


def _event_of(row: AnyRow) -> FleetEvent:
    return FleetEvent(
        number=row.number, at=row.at, change=FleetChange(**{name: getattr(row, name) for name in _CHANGE})
    )
