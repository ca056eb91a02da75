# SPDX-License-Identifier: Apache-2.0
"""What a database says of itself: its site, how often servers have started, the time that has passed."""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, create_engine, func, insert, inspect, select, update
from sqlalchemy.exc import SQLAlchemyError

from orchestrator.core.errors import Retryable
from orchestrator.core.tenancy.tenant import DEFAULT_TENANT
from orchestrator.store.statements import Precompiled, Statements
from orchestrator.store.tables import audit, meta, metadata, tenants

SITE: Final = "site"
"""Id of the database, drawn when it was made."""
STARTS: Final = "starts"
SETTLED: Final = "settled"
"""The number of starts when a person last settled a restored database."""
_TIME_PASSED: Final = "time_passed"
_WRITTEN_AT_START: Final = frozenset({"meta", "secrets", "audit", "events", "tenants"})
"""Tables that have rows once a server has begun, whether anybody has asked it for something or not."""
_VALUE: Final = Precompiled(select(meta.c.value).where(meta.c.key == bindparam("its_key")))
_CHANGE: Final = Precompiled(update(meta).where(meta.c.key == bindparam("its_key")))


class Meta:
    """Texts by their keys."""

    def __init__(self, db: Statements) -> None:
        self._db = db

    def get(self, key: str) -> str | None:
        text: str | None = self._db.execute(_VALUE, {"its_key": key}).scalar_one_or_none()
        return text

    def number(self, key: str) -> int:
        """0: nothing was put there."""
        return int(self.get(key) or 0)

    def put(self, key: str, value: str) -> None:
        if self._db.execute(_CHANGE, {"its_key": key, "value": value}).rowcount == 0:
            self._db.execute(insert(meta).values(key=key, value=value))


def is_unused(db: Statements) -> bool:
    """Whether nobody has put anything there yet: a server has begun, and that is all."""
    if db.execute(select(tenants.c.name).where(tenants.c.name != DEFAULT_TENANT).limit(1)).first() is not None:
        return False
    filled = (table for table in metadata.tables.values() if table.name not in _WRITTEN_AT_START)
    return all(db.execute(select(1).select_from(table).limit(1)).first() is None for table in filled)


class Time:
    """Seconds since 1970, UTC."""

    def __init__(self, db: Statements) -> None:
        self._db = db
        self._meta = Meta(db)

    def shown(self) -> float | None:
        """By PostgreSQL's clock; SQLite has none of its own."""
        if self._db.connection.dialect.name != "postgresql":
            return None
        return float(self._db.execute(select(func.extract("epoch", func.clock_timestamp()))).scalar_one())

    def mark(self) -> float | None:
        """As it was written down, else of the newest record of the audit."""
        mark = self._meta.get(_TIME_PASSED)
        if mark is not None:
            return float(mark)
        newest = select(audit.c.at).order_by(audit.c.sequence.desc()).limit(1)
        at: float | None = self._db.execute(newest).scalar_one_or_none()
        return at

    def no_earlier(self, shown: float) -> float:
        """The later of the two: a wall clock, and what has surely passed."""
        return max(shown, self.mark() or 0.0)

    def put_mark(self, passed: float) -> None:
        self._meta.put(_TIME_PASSED, repr(passed))


def site_at(url: str) -> str | None:
    """Of a database that is only read. None: no server has begun there.

    :raises Retryable: ``store.unavailable``
    """
    try:
        with create_engine(url).connect() as connection:
            return Meta(Statements(connection)).get(SITE) if inspect(connection).has_table(meta.name) else None
    except (SQLAlchemyError, ModuleNotFoundError) as error:
        raise Retryable(
            "store.unavailable",
            "the database cannot be used",
            details=str(error),
            hint="does its server run, is database_url right?",
        ) from error
