# SPDX-License-Identifier: Apache-2.0
"""The audit: refusals written down, records sealed afterwards, all of it shown and checked.

What succeeds is written by each use case in its own transaction. Sealing comes later, on a timer: a chain that every
writer had to lengthen would make them wait for each other.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field

from orchestrator.core.audit import AuditRecord, Head, Verdict, parse_head, seal_of, verify
from orchestrator.ports.clock import Clock
from orchestrator.ports.store.transaction import Store
from orchestrator.services.acting import actor
from orchestrator.services.refusal_bound import OF_STRANGERS, RefusalBound

_AT_ONCE = 500
"""Records sealed in one transaction: others wait no longer than that takes."""


def audit_key(key: bytes) -> bytes:
    """Of the key that encrypts the database's secrets; it is never in the database itself."""
    return hmac.new(key, b"audit", hashlib.sha256).digest()


@dataclass(frozen=True, kw_only=True)
class AuditService:
    store: Store
    clock: Clock
    key: bytes
    bound: RefusalBound = field(default_factory=RefusalBound)

    def refused(self, action: str, subject: str, outcome: str) -> None:
        """A request that changed nothing. Those of strangers are bounded; a later one says how many were left out."""
        left_out: int | None = 0
        if outcome.removeprefix("refused: ") in OF_STRANGERS:
            left_out = self.bound.left_out(self.clock.now())
        if left_out is None:
            return
        with self.store.begin() as tx:
            if left_out:
                more = f"refused: {left_out} more"
                tx.audit.append(
                    at=self.clock.now(), actor="unknown", action="refusals", subject="strangers", outcome=more
                )
            tx.audit.append(at=self.clock.now(), actor=actor(), action=action, subject=subject, outcome=outcome)

    def list(self, *, limit: int, before: int | None = None) -> tuple[AuditRecord, ...]:
        """Newest first; ``before``: only older ones than this sequence number."""
        with self.store.read() as tx:
            return tx.audit.newest(limit=limit, before=before)

    def verify(self, noted: str | None = None) -> Verdict:
        """``noted``: a head as an earlier verdict showed it. :raises InvalidInput: ``audit.head_invalid``"""
        wanted = None if noted is None else parse_head(noted)
        with self.store.read() as tx:
            return verify(self.key, tx.audit.all(), tx.audit.head(), wanted)

    def seal(self) -> None:
        """Seal what is not sealed yet."""
        while self._seal_some() == _AT_ONCE:
            pass

    def _seal_some(self) -> int:
        with self.store.begin() as tx:
            head = tx.audit.head()
            records = tx.audit.after(0 if head is None else head.sequence, limit=_AT_ONCE)
            for record in records:
                head = Head(sequence=record.sequence, seal=seal_of(self.key, "" if head is None else head.seal, record))
                tx.audit.put_seal(head)
        return len(records)
