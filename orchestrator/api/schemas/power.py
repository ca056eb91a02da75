# SPDX-License-Identifier: Apache-2.0
"""Bodies about limits of power."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from orchestrator.api.schemas.base import AnswerBody, CopiedAnswer
from orchestrator.catalogue.described import StrictForm
from orchestrator.core.gpu.power import Budget, Scope
from orchestrator.core.hosts.pool import MAX_NAME
from orchestrator.services.hosts.power import LimitedGpu, PowerReport, PowerUse

_MAX_GPU_W: Final = 10_000
_MAX_BUDGET_W: Final = 2**31 - 1


class GpuCapBody(StrictForm, example={"cap_watts": 500}):
    """A cap of one GPU's power."""

    cap_watts: int | None = Field(ge=1, le=_MAX_GPU_W)
    """The most that it may take, in watts; null: what its driver says."""


class PowerBudgetBody(StrictForm, example={"scope": "rack", "name": "3", "watts": 40_000}):
    """A budget of power for GPUs."""

    scope: Scope
    """host, rack (their label 'rack') or site."""
    name: str = Field(default="", max_length=MAX_NAME)
    """Of the host or rack; left out: the site."""
    watts: int | None = Field(ge=1, le=_MAX_BUDGET_W)
    """What its GPUs may take together; null: there is no budget any more."""

    def to_core(self) -> Budget:
        return Budget(self.scope, self.name)


class PowerUseAnswer(CopiedAnswer, copies=PowerUse):
    """GPUs of the site, a rack or a host, and their power."""


class LimitedGpuAnswer(CopiedAnswer, copies=LimitedGpu):
    """A GPU whose power can be limited."""


class PowerAnswer(AnswerBody):
    """Budgets of power and who keeps to which limit."""

    budgets: tuple[PowerUseAnswer, ...]
    """By scope and name, and the site whether it has one or not."""
    gpus: tuple[LimitedGpuAnswer, ...]
    """Those with a cap of their own, or all of the host that was asked for, by host and address."""

    @classmethod
    def of(cls, report: PowerReport) -> PowerAnswer:
        return cls(
            budgets=tuple(map(PowerUseAnswer.of, report.budgets)), gpus=tuple(map(LimitedGpuAnswer.of, report.gpus))
        )
