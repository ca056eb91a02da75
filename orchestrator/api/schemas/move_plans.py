# SPDX-License-Identifier: Apache-2.0
"""Bodies about moves that could be made."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from orchestrator.api.schemas.base import AnswerBody
from orchestrator.api.schemas.capacity import ActionAnswer, ReasonAnswer
from orchestrator.core.placement.move_plans import UnmovableVm
from orchestrator.services.vms.capacity import NamedPlan


class StayAnswer(AnswerBody):
    """A VM that could not be moved off, and why."""

    vm_id: str
    vm: str | None = Field(description="Its name; null: not known")
    tenant: str
    profile: str
    gpu_ids: tuple[str, ...]
    reasons: tuple[ReasonAnswer, ...]

    @classmethod
    def of(cls, stay: UnmovableVm, names: Mapping[str, str]) -> StayAnswer:
        return cls(
            vm_id=stay.vm_id,
            vm=names.get(stay.vm_id),
            tenant=stay.tenant,
            profile=stay.profile,
            gpu_ids=stay.gpu_ids,
            reasons=tuple(ReasonAnswer.of(reason) for reason in stay.reasons),
        )


class DrainPlanAnswer(AnswerBody):
    """Where a host's VMs could go, and which have to stay."""

    moves: tuple[ActionAnswer, ...] = Field(description="In the order to make them")
    stays: tuple[StayAnswer, ...]

    @classmethod
    def of(cls, named: NamedPlan) -> DrainPlanAnswer:
        return cls(
            moves=tuple(ActionAnswer.of(action, named.names) for action in named.plan.moves),
            stays=tuple(StayAnswer.of(stay, named.names) for stay in named.plan.stays),
        )


class CompactionPlanAnswer(AnswerBody):
    """Which GPUs could be freed by moving VMs onto others in use."""

    moves: tuple[ActionAnswer, ...] = Field(description="In the order to make them")
    freed: tuple[str, ...] = Field(description="host/GPU")

    @classmethod
    def of(cls, named: NamedPlan) -> CompactionPlanAnswer:
        return cls(
            moves=tuple(ActionAnswer.of(action, named.names) for action in named.plan.moves),
            freed=named.plan.freed,
        )
