# SPDX-License-Identifier: Apache-2.0
"""Advice as a person reads it: through the data of the API and the command line's own drawing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from orchestrator.api.schemas.capacity import CapacityAnswer, ExplanationAnswer, GpuMapAnswer
from orchestrator.cli.advice.explain import capacity_columns, render_explanation
from orchestrator.cli.advice.gpu_map import render_gpu_map
from orchestrator.cli.table import render_table
from orchestrator.core.advice.alike import CapacityRow
from orchestrator.core.advice.explain import Explanation, TenantExplanation
from orchestrator.core.advice.gpu_map import GpuRow
from orchestrator.services.vms.capacity import Named

WIDTH = 100


def drawn_explanation(
    explanation: Explanation, *, names: Mapping[str, str] | None = None, preempts: Sequence[str] = ()
) -> str:
    named = Named(explanation=explanation, names=dict(names or {}), preempts=tuple(preempts))
    return _text(render_explanation(_data(ExplanationAnswer.of(named)), WIDTH))


def drawn_for_tenant(told: TenantExplanation) -> str:
    return _text(render_explanation(_data(ExplanationAnswer.of_tenant(told)), WIDTH))


def drawn_capacity(rows: tuple[CapacityRow, ...]) -> str:
    found = _data(CapacityAnswer.of(rows, None))["rows"]
    return _text(render_table(found, capacity_columns(found), None))


def drawn_map(rows: tuple[GpuRow, ...], width: int) -> str:
    return _text(render_gpu_map(_data(GpuMapAnswer.of(rows, {}))["gpus"], width))


def _data(answer: BaseModel) -> dict[str, Any]:
    return answer.model_dump(mode="json")


def _text(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"
