# SPDX-License-Identifier: Apache-2.0
"""The audit's records, and the chain of seals over them.

A seal is a MAC over the record and the seal before it, so nobody without the key can change, insert or remove a sealed
record unnoticed. Cutting off the end shows against the head that is kept beside the records; who can put an old
head back is found out by a head that was noted elsewhere.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.core.errors import InvalidInput

_HEAD = re.compile(r"(?P<sequence>[1-9][0-9]{0,17}):(?P<seal>[0-9a-f]{64})", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class AuditRecord:
    """Who did or wanted what, and what came of it. ``at`` is seconds since the epoch, UTC."""

    sequence: int
    at: float
    actor: str
    action: str
    subject: str
    outcome: str
    seal: str | None
    """None: not sealed yet."""


@dataclass(frozen=True, kw_only=True)
class Head:
    """The last sealed record."""

    sequence: int
    seal: str

    def __str__(self) -> str:
        return f"{self.sequence}:{self.seal}"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What looking at all records showed; no problems: nothing sealed was touched."""

    sealed: int
    unsealed: int
    head: Head | None
    problems: tuple[str, ...]


def parse_head(text: str) -> Head:
    """The inverse of ``str``. :raises InvalidInput: ``audit.head_invalid``"""
    found = _HEAD.fullmatch(text)
    if found is None:
        raise InvalidInput(
            "audit.head_invalid", f"{text[:40]!a} is no head", hint="give one as 'vgpuctl audit verify' printed it"
        )
    return Head(sequence=int(found["sequence"]), seal=found["seal"])


def seal_of(key: bytes, before: str, record: AuditRecord) -> str:
    """``before``: the seal of the record before it, empty for the first."""
    fields = [before, record.sequence, record.at, record.actor, record.action, record.subject, record.outcome]
    return hmac.new(key, json.dumps(fields).encode(), hashlib.sha256).hexdigest()


def verify(key: bytes, records: Iterable[AuditRecord], head: Head | None, noted: Head | None) -> Verdict:
    """``records``: all of them in order. ``noted``: a head that somebody wrote down earlier."""
    problems, sealed, unsealed, seen_noted = [], 0, 0, False
    last: Head | None = None
    for record in records:
        if record.seal is None:
            unsealed += 1
            if head is not None and record.sequence <= head.sequence:
                problems.append(f"record {record.sequence} was put in after those around it were sealed")
            continue
        if not hmac.compare_digest(record.seal, seal_of(key, "" if last is None else last.seal, record)):
            problems.append(f"record {record.sequence} was changed, or one before it changed or removed")
        last = Head(sequence=record.sequence, seal=record.seal)
        seen_noted = seen_noted or last == noted
        sealed += 1
    if last != head:
        end = "the beginning" if last is None else f"record {last.sequence}"
        problems.append(f"records after {end} are missing" if head is not None else "the head of the chain is missing")
    if noted is not None and not seen_noted:
        problems.append(f"record {noted.sequence} is not the one whose seal was noted")
    return Verdict(sealed=sealed, unsealed=unsealed, head=head, problems=tuple(problems))
