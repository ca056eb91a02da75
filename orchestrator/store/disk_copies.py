# SPDX-License-Identifier: Apache-2.0
"""How long disks took from one host to another, beside what was forecast."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

from sqlalchemy import delete, insert, select

from orchestrator.core.moves.forecast import MeasuredCopy
from orchestrator.store.statements import Statements
from orchestrator.store.tables import disk_copies as table

MAX_OF_PAIR: Final = 50
"""Newest copies that are kept of two hosts, and read of the site."""


@dataclass(frozen=True, kw_only=True)
class DiskCopy:
    """``low_s``, ``high_s``: what was forecast; None: nothing had been measured."""

    operation: str
    source: str
    target: str
    size_bytes: int
    seconds: float
    low_s: float | None
    high_s: float | None
    at: float


class DiskCopies:
    def __init__(self, db: Statements) -> None:
        self._db = db

    def add(self, copy: DiskCopy) -> None:
        """In the place of an earlier one of the operation."""
        self._db.execute(delete(table).where(table.c.operation == copy.operation))
        self._db.execute(insert(table).values(asdict(copy)))
        pair = (table.c.source == copy.source) & (table.c.target == copy.target)
        its = select(table.c.operation).where(pair).order_by(table.c.at.desc(), table.c.operation)
        old = its.offset(MAX_OF_PAIR).limit(MAX_OF_PAIR)
        self._db.execute(delete(table).where(table.c.operation.in_(old)))

    def measured(self, source: str, target: str) -> tuple[MeasuredCopy, ...]:
        """Between these two hosts; where nothing was, of any."""
        pair = (table.c.source == source) & (table.c.target == target)
        newest = select(table.c.size_bytes, table.c.seconds).order_by(table.c.at.desc()).limit(MAX_OF_PAIR)
        rows = self._db.execute(newest.where(pair)).all() or self._db.execute(newest).all()
        return tuple(MeasuredCopy(row.size_bytes, row.seconds) for row in rows)

    def of_operation(self, operation: str) -> DiskCopy | None:
        row = self._db.execute(select(table).where(table.c.operation == operation)).one_or_none()
        return None if row is None else DiskCopy(**row._asdict())
