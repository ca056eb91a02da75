# SPDX-License-Identifier: Apache-2.0
"""The body of every error (RFC 9457), as orchestrator/api/errors.py writes it."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from orchestrator.api.schemas.base import AnswerBody


class ProblemReason(AnswerBody):
    """Why something was refused for one group of hosts, GPUs or fields."""

    code: str
    message: str
    subjects: tuple[str, ...]
    count: int = Field(description="How many subjects there are, also those not named")


class ProblemAnswer(AnswerBody):
    """What went wrong. ``code`` is stable, ``detail`` is for people."""

    model_config = ConfigDict(title="Problem")

    type: str
    title: str
    status: int
    detail: str
    family: str
    code: str
    hint: str | None
    operator_details: str | None
    reasons: tuple[ProblemReason, ...]
