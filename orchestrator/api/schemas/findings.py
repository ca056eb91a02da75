# SPDX-License-Identifier: Apache-2.0
"""Findings as the API shows them."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query

from orchestrator.api.schemas.base import AnswerBody, Moment
from orchestrator.core.diff import RepairKind, Severity, StoredFinding, Whose
from orchestrator.core.diff.finding import Finding


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
