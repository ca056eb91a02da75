# SPDX-License-Identifier: Apache-2.0
"""Who did what, as a chain of records."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Protocol, TypedDict, Unpack

from orchestrator.core.tenancy.audit import AuditRecord, Head


class AuditFilter(TypedDict, total=False):
    """Of which records; what is not said matters not."""

    actor: str | None
    """Only by this one, of a token ``token:3f2a`` or ``ci`` alone will do for ``token:3f2a (ci)``."""
    subject: str | None
    """Only about this."""
    since: float | None
    """Only from then on, seconds since the epoch."""
    until: float | None
    """Only before then."""
    refused: bool
    """Only refusals."""


class Audit(Protocol):
    """Records are only ever added; sealing them comes later."""

    def append(self, *, at: float, actor: str, action: str, subject: str, outcome: str) -> None: ...
    def proofs(self, sequences: Collection[int]) -> dict[int, str | None]:
        """Of those of the records that are there, by number."""

    def newest(self, *, limit: int, before: int | None = None, **only: Unpack[AuditFilter]) -> tuple[AuditRecord, ...]:
        """Newest first; ``before``: only older ones than this sequence number."""

    def how_many(self, *, before: int | None = None, **only: Unpack[AuditFilter]) -> int:
        """Those that :meth:`newest` would have without a limit."""

    def all(self) -> Iterator[AuditRecord]:
        """Oldest first."""

    def after(self, sequence: int, *, limit: int) -> tuple[AuditRecord, ...]:
        """Oldest first."""

    def head(self) -> Head | None:
        """None: nothing was sealed yet."""

    def put_seal(self, head: Head) -> None:
        """The record is sealed and the head of the chain."""
