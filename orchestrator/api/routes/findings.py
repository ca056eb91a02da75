# SPDX-License-Identifier: Apache-2.0
"""/v1/findings"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from orchestrator.api.paging import SortedPagingOf
from orchestrator.api.schemas.base import AnswerBody, Moment
from orchestrator.api.services import ServicesOf
from orchestrator.core.diff import RepairKind, Severity, StoredFinding, Whose
from orchestrator.core.diff.finding import Finding
from orchestrator.core.errors import InvalidInput


class FindingAnswer(AnswerBody):
    """One difference between what is wanted and what a host shows."""

    copied_from = (
        Finding,
        StoredFinding,
    )

    code: str
    severity: Severity
    host: str
    subject: str
    vm: str | None
    whose: Whose
    wanted: str
    observed: str
    repair: RepairKind | None
    automatic: bool
    """Whether the repair is done without being asked."""
    reason: str
    first_seen: Moment
    last_seen: Moment
    cleared_at: Moment | None
    operation: str | None

    @classmethod
    def of(cls, kept: StoredFinding) -> FindingAnswer:
        one = kept.finding
        return cls.copied(
            one,
            repair=one.repair.kind if one.repair else None,
            automatic=one.repair is not None and one.repair.automatic,
            first_seen=kept.first_seen,
            last_seen=kept.last_seen,
            cleared_at=kept.cleared_at,
            operation=kept.operation,
        )


class RepairsAnswer(AnswerBody):
    """Repairs that were begun."""

    operations: list[str]
    """Their ids."""


Which = Annotated[Literal["standing", "all"], Query(description="standing, or all that ever were")]


router = APIRouter(prefix="/findings", tags=["findings"])

HostOf = Annotated[str | None, Query(max_length=255, description="Only this host's")]
RemoveOf = Annotated[
    str | None,
    Query(max_length=64, description="After a restore: remove all that the host has of the VM or volume with this id"),
]


@router.get("")
def list_all(
    services: ServicesOf,
    paging: SortedPagingOf,
    host: HostOf = None,
    which: Which = "standing",
) -> list[FindingAnswer]:
    """List findings. What differs, as the last observation of each host showed it; ``all``: also what differed once."""
    findings = services.findings.list(host=host, cleared=which == "all")
    return paging.answers(FindingAnswer, findings, lambda stored: stored.finding.key, FindingAnswer.of)


@router.post("/look")
def observe(services: ServicesOf, host: HostOf = None) -> list[FindingAnswer]:
    """Observe hosts for findings. Look at the hosts now; what is safe is repaired, the rest is told."""
    return [FindingAnswer.of(stored) for stored in services.findings.observe(host)]


@router.post("/repair")
def repair(services: ServicesOf, host: HostOf = None, remove: RemoveOf = None) -> RepairsAnswer:
    """Repair findings. Begin every repair that the standing findings have; with ``remove`` that alone."""
    if remove is not None:
        if host is None:
            raise InvalidInput("request.invalid", "remove is given without a host", hint="give host as well")
        return RepairsAnswer(operations=list(services.findings.remove(host=host, owner=remove)))
    return RepairsAnswer(operations=list(services.findings.repair(host=host)))
