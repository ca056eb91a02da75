# SPDX-License-Identifier: Apache-2.0
"""The time that has passed."""

from __future__ import annotations

from typing import Final

from sqlalchemy import func, insert, select, update

from orchestrator.store.statements import Statements
from orchestrator.store.tables import audit, meta

_MARK: Final = "time_passed"


class Time:
    """Seconds since 1970, UTC."""

    def __init__(self, connection: Statements) -> None:
        self._db = connection

    def shown(self) -> float | None:
        """By PostgreSQL's clock; SQLite has none of its own."""
        if self._db.connection.dialect.name != "postgresql":
            return None
        return float(self._db.execute(select(func.extract("epoch", func.clock_timestamp()))).scalar_one())

    def mark(self) -> float | None:
        """As it was written down, else of the newest record of the audit."""
        mark = self._db.execute(select(meta.c.value).where(meta.c.key == _MARK)).scalar_one_or_none()
        if mark is not None:
            return float(mark)
        newest = select(audit.c.at).order_by(audit.c.sequence.desc()).limit(1)
        at: float | None = self._db.execute(newest).scalar_one_or_none()
        return at

    def no_earlier(self, shown: float) -> float:
        """The later of the two: a wall clock, and what has surely passed."""
        return max(shown, self.mark() or 0.0)

    def put_mark(self, passed: float) -> None:
        if self._db.execute(update(meta).where(meta.c.key == _MARK).values(value=repr(passed))).rowcount == 0:
            self._db.execute(insert(meta).values(key=_MARK, value=repr(passed)))
