# SPDX-License-Identifier: Apache-2.0
"""Tickets for consoles, and consoles that are open."""

from __future__ import annotations

from dataclasses import asdict

from sqlalchemy import delete, func, insert, select, update

from orchestrator.core.vms.console_session import ConsoleKind, ConsoleSession
from orchestrator.store.statements import Statements
from orchestrator.store.tables import console_sessions as table


class ConsoleSessions:
    """Those that are over stay until somebody forgets them, and are shown to nobody."""

    def __init__(self, db: Statements) -> None:
        self._db = db

    def add(self, session: ConsoleSession) -> None:
        self._db.execute(insert(table).values(asdict(session)))

    def forget_over(self, now: float) -> None:
        self._db.execute(delete(table).where(table.c.until <= now))

    def count_of(self, actor: str, now: float) -> int:
        """Tickets and sessions."""
        its = select(func.count()).where(table.c.actor == actor, table.c.until > now)
        return int(self._db.execute(its).scalar_one())

    def use(self, session_id: str, now: float, until: float) -> ConsoleSession | None:
        """None: there is no such ticket, it is over, or it was used: only one of those who use it at once gets it."""
        unused = update(table).where(table.c.id == session_id, table.c.opened_at.is_(None), table.c.until > now)
        row = self._db.execute(unused.values(opened_at=now, until=until).returning(*table.c)).one_or_none()
        return None if row is None else ConsoleSession(**row._asdict())

    def at(self, vm: str, kind: ConsoleKind, now: float) -> tuple[ConsoleSession, ...]:
        """Those that are open, the longest first."""
        its = select(table).where(
            table.c.vm == vm, table.c.kind == kind, table.c.until > now, table.c.opened_at.is_not(None)
        )
        rows = self._db.execute(its.order_by(table.c.opened_at, table.c.id))
        return tuple(ConsoleSession(**row._asdict()) for row in rows)

    def renew(self, session_id: str, until: float) -> None:
        """Gone already is fine."""
        self._db.execute(update(table).where(table.c.id == session_id).values(until=until))

    def claim(self, session_id: str, now: float) -> None:
        """It takes the keyboard. Gone already is fine."""
        self._db.execute(update(table).where(table.c.id == session_id).values(claimed_at=now))

    def remove(self, session_id: str) -> None:
        """Gone already is fine."""
        self._db.execute(delete(table).where(table.c.id == session_id))
