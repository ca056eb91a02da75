# SPDX-License-Identifier: Apache-2.0
"""/v1/audit"""

from __future__ import annotations

from typing import Annotated, Final, Self

from fastapi import APIRouter, Depends, Query
from pydantic import ConfigDict

from orchestrator.api.paging import SortedPagingOf, sequence_of
from orchestrator.api.schemas.base import AnswerBody, Moment
from orchestrator.api.services import ServicesOf
from orchestrator.core.tenancy.audit import AuditRecord, Verdict
from orchestrator.core.vms.lease import parse_moment
from orchestrator.store.records import AuditFilter

MAX_SEQUENCE = 2**31 - 1


class AuditRecordAnswer(AnswerBody, copies=AuditRecord, without={"proof", "seal"}):
    """Who did or wanted what, and what came of it."""

    at: Moment
    sealed: bool
    """Whether a seal covers it."""
    site: str
    """Id of the pool whose audit it is, drawn with its database."""

    @classmethod
    def of(cls, record: AuditRecord, site: str) -> Self:
        return cls.copied(record, sealed=record.seal is not None, site=site)


class ExportedRecord(AuditRecordAnswer):
    """A record as it is stored."""

    model_config = ConfigDict(title="ExportedAuditRecord")

    seal: str | None
    """Over the record and those before it."""
    proof: str | None
    """That the seal covers the record."""


class AuditVerdictAnswer(AnswerBody):
    """Problems are empty when no sealed record was touched."""

    sealed: int
    """How many records seals cover."""
    unsealed: int
    """How many records no seal covers yet."""
    head: str | None
    """Note it elsewhere: a later check takes it."""
    problems: list[str]
    """What keeps it from being used, for people."""

    @classmethod
    def of(cls, verdict: Verdict) -> AuditVerdictAnswer:
        head = None if verdict.head is None else str(verdict.head)
        return cls(sealed=verdict.sealed, unsealed=verdict.unsealed, head=head, problems=list(verdict.problems))


MAX_EXPORTED: Final = 1000

MAX_TEXT: Final = 300
_OFFSET: Final = ", like 2026-12-01T10:00Z or with another offset"

Actor = Annotated[
    str | None, Query(max_length=MAX_TEXT, description="Only by this one; of a token, its id or name will do")
]
Subject = Annotated[str | None, Query(max_length=MAX_TEXT, description="Only about this, gone things too")]

router = APIRouter(prefix="/audit", tags=["audit"])


async def _filter(
    actor: Actor = None,
    subject: Subject = None,
    since: Annotated[str | None, Query(max_length=MAX_TEXT, description="Only from this moment on" + _OFFSET)] = None,
    until: Annotated[str | None, Query(max_length=MAX_TEXT, description="Only before this moment" + _OFFSET)] = None,
    refused: Annotated[bool, Query(description="Only what was refused")] = False,
) -> AuditFilter:
    """:raises InvalidInput: ``since.invalid``, ``until.invalid``"""
    return AuditFilter(
        actor=actor,
        subject=subject,
        since=None if since is None else parse_moment(since, field="since"),
        until=None if until is None else parse_moment(until, field="until"),
        refused=refused,
    )


@router.get("")
def list_all(
    services: ServicesOf,
    paging: SortedPagingOf,
    only: Annotated[AuditFilter, Depends(_filter)],
    before: Annotated[int | None, Query(ge=1, le=MAX_SEQUENCE, description="Only those before this sequence")] = None,
) -> list[AuditRecordAnswer]:
    """List audit records. Who did or wanted what, newest first; refusals too."""
    after = paging.after(1)
    start = None if after is None else sequence_of(after[0])
    ascending = paging.sort is not None and paging.sort_name(("sequence",)) == paging.sort
    records = services.tenancy.audit.list(
        limit=paging.limit + 1,
        before=before if ascending or start is None else start,
        after=(start or 0) if ascending else None,
        **only,
    )
    page = paging.page(
        list(records),
        lambda record: (str(record.sequence),),
        lambda: services.tenancy.audit.how_many(before=before, **only),
    )
    return [AuditRecordAnswer.of(record, services.tenancy.audit.site) for record in page]


@router.get("/export")
def export(
    services: ServicesOf,
    after: Annotated[int, Query(ge=0, le=MAX_SEQUENCE, description="Only those after this sequence")] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_EXPORTED, description="At most so many in this answer")] = MAX_EXPORTED,
) -> list[ExportedRecord]:
    """Export the audit. Whole records, oldest first, with their seals and proofs."""
    audit = services.tenancy.audit
    return [ExportedRecord.of(record, audit.site) for record in audit.after(after, limit=limit)]


@router.get("/verify")
def verify(
    services: ServicesOf,
    head: Annotated[str | None, Query(max_length=100, description="A head that was noted earlier")] = None,
) -> AuditVerdictAnswer:
    """Verify the audit. Whether a sealed record was changed, put in or removed."""
    return AuditVerdictAnswer.of(services.tenancy.audit.verify(head))
