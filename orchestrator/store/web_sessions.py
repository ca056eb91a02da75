# SPDX-License-Identifier: Apache-2.0
"""Browsers' sessions that somebody has logged out of, until they would have been over."""

from __future__ import annotations

from typing import Final

from sqlalchemy import delete, insert, select

from orchestrator.store.statements import Statements
from orchestrator.store.tables import ended_web_sessions as table

MAX_ENDED_OF_CREDENTIAL: Final = 256
"""Beyond that those that would have been over first are forgotten: who logs in and out for ever forgets its own."""


class EndedWebSessions:
    def __init__(self, db: Statements) -> None:
        self._db = db

    def add(self, session_id: str, credential: str, until: float) -> None:
        """Once for all. ``credential``: SHA-256 of the one that it holds."""
        if session_id in self.ids():
            return
        self._db.execute(insert(table).values(id=session_id, credential=credential, until=until))
        its = select(table.c.id).where(table.c.credential == credential).order_by(table.c.until.desc(), table.c.id)
        over = its.offset(MAX_ENDED_OF_CREDENTIAL).limit(MAX_ENDED_OF_CREDENTIAL)
        self._db.execute(delete(table).where(table.c.id.in_(over)))

    def ids(self) -> frozenset[str]:
        return frozenset(self._db.execute(select(table.c.id)).scalars())

    def forget_over(self, now: float) -> None:
        self._db.execute(delete(table).where(table.c.until <= now))
