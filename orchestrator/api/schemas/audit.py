# SPDX-License-Identifier: Apache-2.0
"""Answers about the audit."""

from __future__ import annotations

from datetime import datetime

from pydantic import ConfigDict, Field

from orchestrator.api.schemas.base import AnswerBody, moment
from orchestrator.core.tenancy.audit import AuditRecord, Verdict

MAX_SEQUENCE = 2**31 - 1


class AuditAnswer(AnswerBody):
    model_config = ConfigDict(title="AuditRecord")

    sequence: int
    at: datetime
    actor: str
    action: str
    subject: str
    outcome: str
    sealed: bool
    source: str | None = Field(
        description="Address that the request came from, or the process on this machine; null: no request"
    )
    interface: str | None = Field(description="cli, ansible, python or api, as its client says; null: no request")
    user_agent: str | None = Field(description="What its client calls itself; null: no request")
    site: str = Field(description="Id of the pool whose audit it is, drawn with its database")

    @classmethod
    def of(cls, record: AuditRecord, site: str) -> AuditAnswer:
        return cls(
            sequence=record.sequence,
            at=moment(record.at),
            actor=record.actor,
            action=record.action,
            subject=record.subject,
            outcome=record.outcome,
            sealed=record.seal is not None,
            source=record.source,
            interface=record.interface,
            user_agent=record.user_agent,
            site=site,
        )


class ExportedRecord(AuditAnswer):
    """A record as it is stored."""

    model_config = ConfigDict(title="ExportedAuditRecord")

    seal: str | None
    proof: str | None

    @classmethod
    def of(cls, record: AuditRecord, site: str) -> ExportedRecord:
        told = AuditAnswer.of(record, site).model_dump()
        return cls(**told, seal=record.seal, proof=record.proof)


class VerdictAnswer(AnswerBody):
    """Problems are empty when no sealed record was touched."""

    model_config = ConfigDict(title="AuditVerdict")

    sealed: int
    unsealed: int
    head: str | None = Field(description="Note it elsewhere: a later check takes it")
    problems: list[str]

    @classmethod
    def of(cls, verdict: Verdict) -> VerdictAnswer:
        head = None if verdict.head is None else str(verdict.head)
        return cls(sealed=verdict.sealed, unsealed=verdict.unsealed, head=head, problems=list(verdict.problems))
