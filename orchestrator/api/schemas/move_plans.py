# SPDX-License-Identifier: Apache-2.0
"""Bodies about moves that could be made. ``text`` is the same for people."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from orchestrator.api.schemas.base import AnswerBody
from orchestrator.api.schemas.capacity import ActionAnswer, ReasonAnswer
from orchestrator.core.advice.render_plans import render_compaction, render_drain
from orchestrator.core.placement.move_plans import UnmovableVm
from orchestrator.services.capacity import NamedPlan


class StayAnswer(AnswerBody):
    """A VM that could not be moved off, and why."""

    vm_id: str
    tenant: str
    profile: str
    gpu_ids: tuple[str, ...]
    reasons: tuple[ReasonAnswer, ...]

    @classmethod
    def of(cls, stay: UnmovableVm) -> StayAnswer:
        return cls(
            vm_id=stay.vm_id,
            tenant=stay.tenant,
            profile=stay.profile,
            gpu_ids=stay.gpu_ids,
            reasons=tuple(ReasonAnswer.of(reason) for reason in stay.reasons),
        )


class DrainPlanAnswer(AnswerBody):
    """Where a host's VMs could go, and which have to stay."""

    model_config = ConfigDict(title="DrainPlan")

    moves: tuple[ActionAnswer, ...] = Field(description="In the order to make them")
    stays: tuple[StayAnswer, ...]
    text: str

    @classmethod
    def of(cls, named: NamedPlan, host: str, width: int) -> DrainPlanAnswer:
        return cls(
            moves=tuple(ActionAnswer.of(action) for action in named.plan.moves),
            stays=tuple(StayAnswer.of(stay) for stay in named.plan.stays),
            text=render_drain(named.plan, host, names=named.names, width=width),
        )


class CompactionPlanAnswer(AnswerBody):
    """Which GPUs could be freed by moving VMs onto others in use."""

    model_config = ConfigDict(title="CompactionPlan")

    moves: tuple[ActionAnswer, ...] = Field(description="In the order to make them")
    freed: tuple[str, ...] = Field(description="host/GPU")
    text: str

    @classmethod
    def of(cls, named: NamedPlan, width: int) -> CompactionPlanAnswer:
        return cls(
            moves=tuple(ActionAnswer.of(action) for action in named.plan.moves),
            freed=named.plan.freed,
            text=render_compaction(named.plan, names=named.names, width=width),
        )
