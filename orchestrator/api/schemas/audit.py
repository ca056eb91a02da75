# SPDX-License-Identifier: Apache-2.0
"""Answers about the audit."""

from __future__ import annotations

from typing import Self

from pydantic import ConfigDict

from orchestrator.api.schemas.base import AnswerBody, Moment
from orchestrator.core.tenancy.audit import AuditRecord, Verdict

MAX_SEQUENCE = 2**31 - 1


class AuditAnswer(AnswerBody, copies=AuditRecord, without={"proof", "seal"}):
    """Who did or wanted what, and what came of it."""

    model_config = ConfigDict(title="AuditRecord")

    at: Moment
    sealed: bool
    """Whether a seal covers it."""
    site: str
    """Id of the pool whose audit it is, drawn with its database."""

    @classmethod
    def of(cls, record: AuditRecord, site: str) -> Self:
        return cls.copied(record, sealed=record.seal is not None, site=site)


class ExportedRecord(AuditAnswer):
    """A record as it is stored."""

    model_config = ConfigDict(title="ExportedAuditRecord")

    seal: str | None
    """Over the record and those before it."""
    proof: str | None
    """That the seal covers the record."""


class VerdictAnswer(AnswerBody):
    """Problems are empty when no sealed record was touched."""

    model_config = ConfigDict(title="AuditVerdict")

    sealed: int
    """How many records seals cover."""
    unsealed: int
    """How many records no seal covers yet."""
    head: str | None
    """Note it elsewhere: a later check takes it."""
    problems: list[str]
    """What keeps it from being used, for people."""

    @classmethod
    def of(cls, verdict: Verdict) -> VerdictAnswer:
        head = None if verdict.head is None else str(verdict.head)
        return cls(sealed=verdict.sealed, unsealed=verdict.unsealed, head=head, problems=list(verdict.problems))
