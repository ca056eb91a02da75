# SPDX-License-Identifier: Apache-2.0
"""How long disks, and VMs that ran, took from one host to another, beside what was forecast."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

from sqlalchemy import ColumnElement, delete, insert, select

from orchestrator.core.actions.live_move import MoveLoad
from orchestrator.core.moves.forecast import MeasuredCopy
from orchestrator.core.moves.live_forecast import MeasuredMove
from orchestrator.store.statements import Statements
from orchestrator.store.tables import disk_copies as table

MAX_OF_PAIR: Final = 50
"""Newest of a kind that are kept of two hosts, and read of the site."""
_LIVE: Final = table.c.pause_s.is_not(None)
_OF_DISKS: Final = table.c.pause_s.is_(None)


@dataclass(frozen=True, kw_only=True)
class DiskCopy:
    """``low_s``, ``high_s``: what was forecast; None: nothing had been measured. From ``sent_bytes`` on of a VM that
    moved while it ran (core/moves/live_forecast.py)."""

    operation: str
    source: str
    target: str
    size_bytes: int
    seconds: float
    low_s: float | None
    high_s: float | None
    at: float
    sent_bytes: int | None = None
    memory_bytes: int | None = None
    dirty_per_s: int | None = None
    device_bytes: int | None = None
    pause_s: float | None = None
    pause_low_s: float | None = None
    pause_high_s: float | None = None


class DiskCopies:
    def __init__(self, db: Statements) -> None:
        self._db = db

    def add(self, copy: DiskCopy) -> None:
        """In the place of an earlier one of the operation."""
        self._db.execute(delete(table).where(table.c.operation == copy.operation))
        self._db.execute(insert(table).values(asdict(copy)))
        pair = (table.c.source == copy.source) & (table.c.target == copy.target)
        its = select(table.c.operation).where(pair, _OF_DISKS if copy.pause_s is None else _LIVE)
        old = its.order_by(table.c.at.desc(), table.c.operation).offset(MAX_OF_PAIR).limit(MAX_OF_PAIR)
        self._db.execute(delete(table).where(table.c.operation.in_(old)))

    def measured(self, source: str, target: str) -> tuple[MeasuredCopy, ...]:
        """Disks between these two hosts; where none was, of any."""
        copies = self._newest(source, target, _OF_DISKS)
        return tuple(MeasuredCopy(copy.size_bytes, copy.seconds) for copy in copies)

    def measured_live(self, source: str, target: str) -> tuple[MeasuredMove, ...]:
        """VMs that moved while they ran between these two hosts; where none did, between any."""
        return tuple(map(_measured, self._newest(source, target, _LIVE)))

    def _newest(self, source: str, target: str, kind: ColumnElement[bool]) -> list[DiskCopy]:
        pair = (table.c.source == source) & (table.c.target == target)
        newest = select(table).where(kind).order_by(table.c.at.desc()).limit(MAX_OF_PAIR)
        rows = self._db.execute(newest.where(pair)).all() or self._db.execute(newest).all()
        return [DiskCopy(**row._asdict()) for row in rows]

    def of_operation(self, operation: str) -> DiskCopy | None:
        row = self._db.execute(select(table).where(table.c.operation == operation)).one_or_none()
        return None if row is None else DiskCopy(**row._asdict())


def _measured(move: DiskCopy) -> MeasuredMove:
    load = MoveLoad(
        memory_bytes=move.memory_bytes or 0, dirty_per_s=move.dirty_per_s, device_bytes=move.device_bytes
    )  # fmt: skip
    return MeasuredMove(load, move.size_bytes, move.sent_bytes or 0, move.seconds, move.pause_s or 0.0)
