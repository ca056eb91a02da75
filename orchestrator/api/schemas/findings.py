# SPDX-License-Identifier: Apache-2.0
"""Findings as the API shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from orchestrator.api.schemas.base import AnswerBody, moment, moment_or_none
from orchestrator.core.diff import RepairKind, Severity, StoredFinding, Whose


class FindingAnswer(AnswerBody):
    """One difference between what is wanted and what a host shows."""

    code: str = Field(description="Stable, e.g. vm.device_missing")
    severity: Severity
    host: str
    subject: str
    vm: str | None = Field(description="Id of the VM it is about")
    whose: Whose = Field(description="unknown: our own ledger says it is ours, the database does not know its VM")
    wanted: str
    observed: str
    repair: RepairKind | None
    automatic: bool = Field(description="Whether the repair is done without being asked")
    reason: str = Field(description="What the repair does, or why there is none")
    first_seen: datetime
    last_seen: datetime
    cleared_at: datetime | None
    operation: str | None = Field(description="The operation that was begun last to repair it")

    @classmethod
    def of(cls, kept: StoredFinding) -> FindingAnswer:
        one = kept.finding
        return cls(
            code=one.code,
            severity=one.severity,
            host=one.host,
            subject=one.subject,
            vm=one.vm,
            whose=one.whose,
            wanted=one.wanted,
            observed=one.observed,
            repair=one.repair.kind if one.repair else None,
            automatic=one.repair is not None and one.repair.automatic,
            reason=one.reason,
            first_seen=moment(kept.first_seen),
            last_seen=moment(kept.last_seen),
            cleared_at=moment_or_none(kept.cleared_at),
            operation=kept.operation,
        )


class RepairsAnswer(AnswerBody):
    """Repairs that were begun."""

    operations: list[str]


Which = Literal["standing", "all"]
