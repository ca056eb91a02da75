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
from typing import Final

from orchestrator.core.errors import InvalidInput, one_line
from orchestrator.core.tenancy.key_ring import origin_of

_NONCE = 32
MAX_RECORD_TEXT = 4500
"""Enough for all labels of a VM."""
_HEAD = re.compile(r"(?P<sequence>[1-9][0-9]{0,17}):(?P<seal>[0-9a-f]{64})", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Of a request. ``source``: an address, ``unix pid 4711``, or ``loopback`` for a browser of a user of the server's
    machine; ``interface``: ``cli``, ``ansible``, ``python``, ``web``, or ``api``, as ``user_agent`` says: the
    client's own words."""

    source: str
    interface: str
    user_agent: str


@dataclass(frozen=True, kw_only=True)
class AuditRecord:
    """Who did or wanted what, and what came of it. ``at`` is seconds since the epoch, UTC."""

    sequence: int
    """Its number; they grow without gaps."""
    at: float
    """When."""
    actor: str
    """Who did it: a token's name, a login, or a uid of the server's machine."""
    action: str
    """What was done or wanted, like create_vm."""
    subject: str
    """What or whom it is about."""
    outcome: str
    """done, or why not."""
    seal: str | None
    """None: not sealed yet."""
    proof: str | None
    """That a server wrote it (:func:`proof_of`); None: a version that gave none did."""
    source: str | None = None
    """Address that the request came from, or the process on this machine; None: no request."""
    interface: str | None = None
    """cli, ansible, python or api, as its client says; None: no request."""
    user_agent: str | None = None
    """What its client calls itself; None: no request, or of a version that did not note it."""

    @property
    def said(self) -> list[object]:
        """What is sealed. Records without an origin are sealed as they were before there was any."""
        origin = [self.source, self.interface, self.user_agent]
        known = [] if origin == [None] * 3 else origin
        return [self.at, self.actor, self.action, self.subject, self.outcome, *known]


REFUSED: Final = "refused: "
"""How the outcome of what was refused begins."""


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


def audit_key(key: bytes) -> bytes:
    """Of the ring of keys that encrypt the database's secrets; it is never in the database itself, and stays when they
    are changed."""
    return hmac.new(origin_of(key), b"audit", hashlib.sha256).digest()


def record_text(text: str) -> str:
    """As it stands in a record: in one line, without letters that nobody sees, no longer than people read. Whoever asks
    chooses part of it, and records stay for good."""
    return one_line(text, MAX_RECORD_TEXT)


def proof_of(key: bytes, nonce: str, fields: list[object]) -> str:
    """What a record gets when it is written. ``nonce``: 32 hexadecimal digits that no other has; ``said``: of it."""
    return nonce + hmac.new(key, json.dumps(["record", nonce, *fields]).encode(), hashlib.sha256).hexdigest()


def proven(key: bytes, record: AuditRecord) -> bool:
    """Whether a server that has the key wrote it."""
    if record.proof is None:
        return False
    return _same(record.proof, proof_of(key, record.proof[:_NONCE], record.said))


def parse_head(text: str) -> Head:
    """The inverse of ``str``. :raises InvalidInput: ``audit.head_invalid``"""
    match = _HEAD.fullmatch(text)
    if match is None:
        raise InvalidInput(
            "audit.head_invalid", f"{text[:40]!a} is no head", hint="give one as 'vgpuctl audit verify' printed it"
        )
    return Head(sequence=int(match["sequence"]), seal=match["seal"])


def seal_of(key: bytes, before: str, record: AuditRecord) -> str:
    """``before``: the seal of the record before it, empty for the first."""
    fields = [before, record.sequence, *record.said]
    return hmac.new(key, json.dumps(fields).encode(), hashlib.sha256).hexdigest()


def verify(
    key: bytes, records: Iterable[AuditRecord], head: Head | None, noted: Iterable[Head], *, trusting: bool = False
) -> Verdict:
    """``records``: all of them in order. ``noted``: heads that somebody wrote down earlier. ``trusting``: an older
    version wrote what has no proof and no seal yet.
    """
    problems, sealed, unsealed = list[str](), 0, 0
    missing, proofs = dict.fromkeys(noted), set[str]()
    last: Head | None = None
    for record in records:
        before = "" if last is None else last.seal
        if record.seal is not None and not _same(record.seal, seal_of(key, before, record)):
            problems.append(f"record {record.sequence} was changed, or one before it changed or removed")
        elif record.proof in proofs:
            problems.append(f"record {record.sequence} was put in again")
        elif not proven(key, record) and (record.proof is not None or (record.seal is None and not trusting)):
            problems.append(f"record {record.sequence} was not written by a server, or was changed")
        if record.proof is not None:
            proofs.add(record.proof)
        if record.seal is None:
            unsealed += 1
            if head is not None and record.sequence <= head.sequence:
                problems.append(f"record {record.sequence} was put in after those around it were sealed")
            continue
        last = Head(sequence=record.sequence, seal=record.seal)
        missing.pop(last, None)
        sealed += 1
    if last != head:
        end = "the beginning" if last is None else f"record {last.sequence}"
        problems.append(f"records after {end} are missing" if head is not None else "the head of the chain is missing")
    problems += [f"record {noted.sequence} is not the one whose seal was noted" for noted in missing]
    return Verdict(sealed=sealed, unsealed=unsealed, head=head, problems=tuple(problems))


def _same(given: str, right: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), right.encode())
