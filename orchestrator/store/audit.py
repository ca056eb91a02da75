# SPDX-License-Identifier: Apache-2.0
"""Audit records, their seals, and the request that they are written in. Records are only ever added.

From where a request came, and how many records it has written, is a variable of its context: no use case has either as
an argument.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from typing import Final, Unpack

from sqlalchemy import ColumnElement, bindparam, func, insert, or_, select, update
from sqlalchemy.sql.functions import count

from orchestrator.core.tenancy.audit import REFUSED, AuditRecord, Head, Origin, parse_head, proof_of, record_text
from orchestrator.core.tenancy.tenant import token_of_actor, with_name
from orchestrator.store.meta import Meta
from orchestrator.store.records import AuditFilter
from orchestrator.store.statements import Precompiled, Statements
from orchestrator.store.tables import audit, tokens

_HEAD = "audit_head"
_MAX_NUMBERS = 500
_NAME: Final = Precompiled(select(tokens.c.name).where(tokens.c.id == bindparam("its_id")))
_ADD: Final = Precompiled(insert(audit).returning(audit.c.sequence))


def _matching(before: int | None, only: AuditFilter) -> Iterator[ColumnElement[bool]]:
    if before is not None:
        yield audit.c.sequence < before
    if (since := only.get("since")) is not None:
        yield audit.c.at >= since
    if (until := only.get("until")) is not None:
        yield audit.c.at < until
    if only.get("refused"):
        yield audit.c.outcome.startswith(REFUSED)
    if (actor := only.get("actor")) is not None:
        named = with_name(actor, "")[:-1]  # up to its name; LIKE would not tell cases apart, and names have one
        identity = func.substr(audit.c.actor, 1, len(named)) == named
        yield or_(audit.c.actor == actor, identity, audit.c.actor.endswith(f" ({actor})", autoescape=True))
    if (subject := only.get("subject")) is not None:
        yield audit.c.subject == subject


class Audit:
    """Records are only ever added; sealing them comes later."""

    def __init__(self, connection: Statements, key: bytes) -> None:
        """``key``: of :func:`audit_key`."""
        self._db = connection
        self._key = key
        self._meta = Meta(connection)
        self.appended: list[tuple[int, str]] = []
        """Number and proof of each record that this transaction wrote."""

    def append(self, *, at: float, actor: str, action: str, subject: str, outcome: str) -> None:
        """Who acts is written down with the name of a token, which may be gone when somebody reads it."""
        actor = record_text(with_name(actor, self._name_of_token(actor)))
        action, subject, outcome = map(record_text, (action, subject, outcome))
        origin = request_origin()
        record = AuditRecord(
            sequence=0, at=at, actor=actor, action=action, subject=subject, outcome=outcome, seal=None, proof=None,
            **({} if origin is None else asdict(origin)),
        )  # fmt: skip
        proof = proof_of(self._key, secrets.token_hex(16), record.said)
        values = {name: value for name, value in asdict(record).items() if name not in {"sequence", "seal"}}
        written = self._db.execute(_ADD, {**values, "proof": proof})
        self.appended.append((written.scalar_one(), proof))

    def _name_of_token(self, actor: str) -> str | None:
        token = token_of_actor(actor)
        return None if token is None else self._db.execute(_NAME, {"its_id": token}).scalar_one_or_none()

    def proofs(self, sequences: Collection[int]) -> dict[int, str | None]:
        """Of those of the records that are there, by number."""
        ordered, proofs = sorted(sequences), dict[int, str | None]()
        for at in range(0, len(ordered), _MAX_NUMBERS):
            query = select(audit.c.sequence, audit.c.proof).where(audit.c.sequence.in_(ordered[at : at + _MAX_NUMBERS]))
            proofs.update((row.sequence, row.proof) for row in self._db.execute(query))
        return proofs

    def newest(
        self, *, limit: int, before: int | None = None, after: int | None = None, **only: Unpack[AuditFilter]
    ) -> tuple[AuditRecord, ...]:
        """Newest first; ``after``: oldest first, those after that number."""
        query = select(audit).where(*_matching(before, only)).limit(limit)
        if after is None:
            query = query.order_by(audit.c.sequence.desc())
        else:
            query = query.where(audit.c.sequence > after).order_by(audit.c.sequence)
        return tuple(AuditRecord(**row._asdict()) for row in self._db.execute(query))

    def how_many(self, *, before: int | None = None, **only: Unpack[AuditFilter]) -> int:
        """Those that :meth:`newest` would have without a limit."""
        query = select(count()).select_from(audit).where(*_matching(before, only))
        return int(self._db.execute(query).scalar_one())

    def all(self) -> Iterator[AuditRecord]:
        """Oldest first."""
        for row in self._db.connection.execute(select(audit).order_by(audit.c.sequence)):
            yield AuditRecord(**row._asdict())

    def after(self, sequence: int, *, limit: int) -> tuple[AuditRecord, ...]:
        """Oldest first."""
        query = select(audit).where(audit.c.sequence > sequence).order_by(audit.c.sequence).limit(limit)
        return tuple(AuditRecord(**row._asdict()) for row in self._db.execute(query))

    def head(self) -> Head | None:
        """None: nothing was sealed yet."""
        text = self._meta.get(_HEAD)
        return None if text is None else parse_head(text)

    def put_seal(self, head: Head) -> None:
        """The record is sealed and the head of the chain."""
        self._db.execute(update(audit).where(audit.c.sequence == head.sequence).values(seal=head.seal))
        self._meta.put(_HEAD, str(head))


@dataclass
class _Current:
    origin: Origin | None
    recorded: int = 0


_CURRENT: ContextVar[_Current | None] = ContextVar("current_request", default=None)


def came_from(origin: Origin | None) -> None:
    """From here on in this request (each has a context of its own, which its threads inherit)."""
    _CURRENT.set(_Current(origin))


def request_origin() -> Origin | None:
    """None: no request, the server does it by itself."""
    current = _CURRENT.get()
    return None if current is None else current.origin


def note_recorded(count: int) -> None:
    """So many records more were committed."""
    current = _CURRENT.get()
    if current is not None:
        current.recorded += count


def recorded() -> int:
    """Records that the request has committed until now, in whichever of its threads."""
    current = _CURRENT.get()
    return 0 if current is None else current.recorded
