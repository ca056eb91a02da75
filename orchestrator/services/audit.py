# SPDX-License-Identifier: Apache-2.0
"""The audit: refusals written down, records sealed afterwards, all of it shown and checked.

What succeeds is written by each use case in its own transaction. Sealing comes later, on a timer: a chain that every
writer had to lengthen would make them wait for each other.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, Unpack

from orchestrator.core.errors import InvalidInput, NotFound
from orchestrator.core.names import near
from orchestrator.core.tenancy.audit import AuditRecord, Head, Verdict, parse_head, proven, seal_of, verify
from orchestrator.core.tenancy.tenant import token_of_actor
from orchestrator.ports.clock import Clock
from orchestrator.ports.files import NotedHead
from orchestrator.services.acting import actor as acting
from orchestrator.services.known_names import names_of_things
from orchestrator.store.database import Store
from orchestrator.store.records import AuditFilter
from orchestrator.store.transaction import Transaction

log = logging.getLogger(__name__)

MOST: Final = 60
WINDOW_S: Final = 60.0


@dataclass
class _Window:
    began: float
    count: int = 0


class RefusalBound:
    """At most ``most`` of each asker in a window of seconds; the others are counted."""

    def __init__(self, most: int = MOST, window_s: float = WINDOW_S) -> None:
        self._most = most
        self._window_s = window_s
        self._lock = Lock()
        self._windows: dict[str, _Window] = {}

    def left_out(self, asker: str, now: float) -> int | None:
        """None: this one is only counted. Else it is to be written down, and how many of the asker before it were
        not."""
        with self._lock:
            missed, window = 0, self._windows.get(asker)
            if window is None or not self._goes_on(window, now):
                missed = 0 if window is None else max(0, window.count - self._most)
                self._forget_others(now)
                window = self._windows[asker] = _Window(now)
            window.count += 1
            return missed if window.count <= self._most else None

    def _goes_on(self, window: _Window, now: float) -> bool:
        return 0 <= now - window.began < self._window_s

    def _forget_others(self, now: float) -> None:
        """Those that are over and of which everything is written down."""
        kept = {
            asker: window
            for asker, window in self._windows.items()
            if self._goes_on(window, now) or window.count > self._most
        }
        self._windows = kept


_AT_ONCE = 500
"""Records sealed in one transaction: others wait no longer than that takes."""
_COMPARED = 1000
"""Newest records among whose names the one is looked for that was meant."""


@dataclass(frozen=True, kw_only=True)
class AuditService:
    store: Store
    clock: Clock
    key: bytes
    noted: NotedHead | None = None
    """Where the head is written down outside the database; None: nowhere."""
    bound: RefusalBound = field(default_factory=RefusalBound)

    @property
    def site(self) -> str:
        """Whose audit it is: who gathers several tells their records apart by it."""
        return self.store.site

    def refused(self, action: str, subject: str, outcome: str, *, asker: str | None) -> None:
        """A request that changed nothing. Those of one asker (strangers are one, and so is a tenant) are bounded
        whatever their code; a later one says how many were left out. None: of whoever runs the pool, each is
        written down."""
        left_out = 0 if asker is None else self.bound.left_out(asker, self.clock.now())
        if left_out is None:
            return
        with self.store.begin() as tx:
            if left_out:
                more = f"refused: {left_out} more"
                tx.audit.append(
                    at=self.clock.now(), actor="unknown", action="refusals", subject=str(asker), outcome=more
                )
            tx.audit.append(at=self.clock.now(), actor=acting(), action=action, subject=subject, outcome=outcome)

    def list(
        self, *, limit: int, before: int | None = None, after: int | None = None, **only: Unpack[AuditFilter]
    ) -> tuple[AuditRecord, ...]:
        """Newest first; ``before``: only older ones than this sequence number. ``after``: oldest first, newer ones.

        :raises NotFound: ``audit.actor_unknown``, ``audit.subject_unknown``
        :raises InvalidInput: ``until.invalid``
        """
        since, until = only.get("since"), only.get("until")
        if since is not None and until is not None and until <= since:
            raise InvalidInput("until.invalid", "until is not later than since", hint="name a later moment for until")
        with self.store.read() as tx:
            records = tx.audit.newest(limit=limit, before=before, after=after, **only)
            if not records:
                _check_actor(tx, only.get("actor"))
                _check_subject(tx, only.get("subject"))
            return records

    def how_many(self, *, before: int | None = None, **only: Unpack[AuditFilter]) -> int:
        """Those that :meth:`list` would have without a limit."""
        with self.store.read() as tx:
            return tx.audit.how_many(before=before, **only)

    def after(self, sequence: int, *, limit: int) -> tuple[AuditRecord, ...]:
        """Oldest first, those after that sequence number."""
        with self.store.read() as tx:
            return tx.audit.after(sequence, limit=limit)

    def verify(self, since: str | None = None) -> Verdict:
        """``since``: a head as an earlier verdict showed it. :raises InvalidInput: ``audit.head_invalid``"""
        given, noted = None if since is None else parse_head(since), self._noted_head()
        heads = [head for head in (given, noted) if head is not None]
        with self.store.read() as tx:
            return verify(self.key, tx.audit.all(), tx.audit.head(), heads, trusting=self._is_first(noted))

    def seal(self) -> None:
        """Seal what is not sealed yet, and write the head down. What a server did not write stays as it is, for
        :meth:`verify` to name; what it wrote and is not there any more is put on record."""
        noted = self._noted_head()
        self._miss_no_record()
        if noted is not None:
            self._miss_no_head(noted)
        position: int | None = 0
        while position is not None:
            position = self._seal_some(position, trusting=self._is_first(noted))
        if self.noted is not None:
            self._write_down(self.noted, noted)

    def _noted_head(self) -> Head | None:
        text = None if self.noted is None else self.noted.read()
        return None if text is None else parse_head(text)

    def _is_first(self, noted: Head | None) -> bool:
        """Whether no round has written a head down yet: records without a proof are of an older version then."""
        return self.noted is not None and noted is None

    def _miss_no_record(self) -> None:
        written = self.store.appended()
        with self.store.read() as tx:
            proofs = tx.audit.proofs([sequence for sequence, _ in written]) if written else {}
        lost = sum(proofs.get(sequence) != proof for sequence, proof in written)
        if lost:
            with self.store.begin() as tx:
                self._found(tx, f"{lost} that were not sealed were removed or replaced")

    def _miss_no_head(self, noted: Head) -> None:
        """Where the head alone was removed, the noted one is put in its place."""
        with self.store.read() as tx:
            gone = tx.audit.head() is None and _stands(tx, noted)
        if gone:
            with self.store.begin() as tx:
                tx.audit.put_seal(noted)
                self._found(tx, "the head of the chain was removed")

    def _found(self, tx: Transaction, what: str) -> None:
        log.error("of the audit's records, %s", what)
        at, outcome = self.clock.now(), f"found: {what}"
        tx.audit.append(at=at, actor="server", action="audit", subject="records", outcome=outcome)

    def _write_down(self, file: NotedHead, before: Head | None) -> None:
        """The newest head. One that does not stand in the chain any more is kept: :meth:`verify` tells of it."""
        with self.store.read() as tx:
            head = tx.audit.head()
            if before is not None and not _stands(tx, before):
                log.error("the audit is not what this server has sealed: 'vgpuctl audit verify' tells more")
                return
        if head is not None and head != before:
            file.write(str(head))

    def _seal_some(self, position: int, *, trusting: bool) -> int | None:
        """Where to go on; None: that was the last. ``trusting``: an older version wrote what has no proof."""
        with self.store.begin() as tx:
            head = tx.audit.head()
            records = tx.audit.after(max(position, 0 if head is None else head.sequence), limit=_AT_ONCE)
            for record in records:
                if proven(self.key, record) or (trusting and record.proof is None):
                    seal = seal_of(self.key, "" if head is None else head.seal, record)
                    head = Head(sequence=record.sequence, seal=seal)
                    tx.audit.put_seal(head)
        return records[-1].sequence if len(records) == _AT_ONCE else None


def _check_actor(tx: Transaction, actor: str | None) -> None:
    """Nothing was found: because they did nothing there, or because nobody is called so."""
    if actor is None or tx.audit.newest(limit=1, actor=actor) or tx.tenants.members(subject=actor):
        return
    token = token_of_actor(actor)
    if token is None or tx.tokens.find(token) is None:
        known = dict.fromkeys(record.actor for record in tx.audit.newest(limit=_COMPARED))
        hint = near(actor, known, "vgpuctl audit list")
        raise NotFound("audit.actor_unknown", f"nobody in the audit is called {actor[:80]!a}", hint=hint)


def _check_subject(tx: Transaction, subject: str | None) -> None:
    """The same of what records are about: it may be there, and nobody did anything to it."""
    if subject is None or tx.audit.newest(limit=1, subject=subject):
        return
    things = names_of_things(tx, None)
    if subject not in things:
        known = dict.fromkeys([*(record.subject for record in tx.audit.newest(limit=_COMPARED)), *things])
        hint = near(subject, known, "vgpuctl audit list")
        raise NotFound("audit.subject_unknown", f"nothing in the audit is called {subject[:80]!a}", hint=hint)


def _stands(tx: Transaction, head: Head) -> bool:
    """Whether the record with that number has that seal."""
    records = tx.audit.after(head.sequence - 1, limit=1)
    return [(record.sequence, record.seal) for record in records] == [(head.sequence, head.seal)]
