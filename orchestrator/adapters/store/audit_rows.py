# SPDX-License-Identifier: Apache-2.0
"""Audit records and their seals. Records are only ever added."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection, delete, insert, select, update

from orchestrator.adapters.store.tables import audit, meta
from orchestrator.core.audit import AuditRecord, Head, parse_head

_HEAD = "audit_head"


class SqlAudit:
    def __init__(self, connection: Connection) -> None:
        self._db = connection

    def append(self, *, at: float, actor: str, action: str, subject: str, outcome: str) -> None:
        record = {"at": at, "actor": actor, "action": action, "subject": subject, "outcome": outcome}
        self._db.execute(insert(audit), record)

    def newest(self, *, limit: int, before: int | None) -> tuple[AuditRecord, ...]:
        """Newest first."""
        query = select(audit).order_by(audit.c.sequence.desc()).limit(limit)
        if before is not None:
            query = query.where(audit.c.sequence < before)
        return tuple(AuditRecord(**row._asdict()) for row in self._db.execute(query))

    def all(self) -> Iterator[AuditRecord]:
        """Oldest first."""
        for row in self._db.execute(select(audit).order_by(audit.c.sequence)):
            yield AuditRecord(**row._asdict())

    def after(self, sequence: int, *, limit: int) -> tuple[AuditRecord, ...]:
        """Oldest first."""
        query = select(audit).where(audit.c.sequence > sequence).order_by(audit.c.sequence).limit(limit)
        return tuple(AuditRecord(**row._asdict()) for row in self._db.execute(query))

    def head(self) -> Head | None:
        """None: nothing was sealed yet."""
        text = self._db.execute(select(meta.c.value).where(meta.c.key == _HEAD)).scalar_one_or_none()
        return None if text is None else parse_head(text)

    def put_seal(self, head: Head) -> None:
        """The record is sealed and the head of the chain."""
        self._db.execute(update(audit).where(audit.c.sequence == head.sequence).values(seal=head.seal))
        self._db.execute(delete(meta).where(meta.c.key == _HEAD))
        self._db.execute(insert(meta).values(key=_HEAD, value=str(head)))
