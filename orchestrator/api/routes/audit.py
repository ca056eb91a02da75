# SPDX-License-Identifier: Apache-2.0
"""/v1/audit"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from orchestrator.api.paging import PagingOf, sequence_of
from orchestrator.api.schemas.audit import MAX_SEQUENCE, AuditAnswer, VerdictAnswer
from orchestrator.api.services import ServicesOf

router = APIRouter(prefix="/audit", tags=["audit"])


@router.get("")
def list_all(
    services: ServicesOf,
    paging: PagingOf,
    before: Annotated[int | None, Query(ge=1, le=MAX_SEQUENCE, description="Only those before this sequence")] = None,
) -> list[AuditAnswer]:
    """Who did or wanted what, newest first; refusals too."""
    after = paging.after(1)
    start = before if after is None else sequence_of(after[0])
    found = services.tenancy.audit.list(limit=paging.limit + 1, before=start)
    return [AuditAnswer.of(one) for one in paging.page(list(found), lambda one: (str(one.sequence),))]


@router.get("/verify")
def verify(
    services: ServicesOf,
    head: Annotated[str | None, Query(max_length=100, description="A head that was noted earlier")] = None,
) -> VerdictAnswer:
    """Whether a sealed record was changed, put in or removed."""
    return VerdictAnswer.of(services.tenancy.audit.verify(head))
