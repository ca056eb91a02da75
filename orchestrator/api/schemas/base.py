# SPDX-License-Identifier: Apache-2.0
"""What all bodies share: unknown fields are refused, types are not coerced, times are RFC 3339 in UTC."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final, Self

from fastapi import Path
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from orchestrator.core.labels import MAX_DESCRIPTION, MAX_LABELS
from orchestrator.core.names import NAME_PATTERN
from orchestrator.core.plain_words import LINE_PATTERN

MAX_NAME: Final = 255
"""Longer text is no name at all; what a legal name is, core/names.py says, and refuses with a hint."""
_AS_DESCRIBED: Final = {"pattern": f"^{NAME_PATTERN}$"}

Name = Annotated[str, Field(max_length=MAX_NAME, json_schema_extra=_AS_DESCRIBED)]
NameInPath = Annotated[str, Path(json_schema_extra=_AS_DESCRIBED)]


LabelValue = Annotated[str, Field(max_length=MAX_NAME)]
"""Which letters it may have is said once, in core/labels.py."""


class RequestBody(BaseModel):
    """Strict: ``"4"`` is not a number and a misspelt field is a mistake."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class DescribeBody(RequestBody):
    """What people say of a thing; what is not named stays."""

    model_config = ConfigDict(
        title="Describe",
        json_schema_extra={"examples": [{"description": "nodes of team A", "labels": {"Team": "a"}}]},
    )

    description: str | None = Field(
        default=None, max_length=MAX_DESCRIPTION, pattern=LINE_PATTERN, description="null: it stays"
    )
    labels: dict[str, LabelValue | None] = Field(
        default={}, max_length=2 * MAX_LABELS, description="By key; null takes one away"
    )


class AnswerBody(BaseModel):
    """Built by us from core models. Its schema is called like the class without ``Answer``, or has a title."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class CopiedAnswer(AnswerBody):
    """Each field is called as that of the core model which it tells of."""

    model_config = ConfigDict(from_attributes=True)

    @classmethod
    def of(cls, told: object) -> Self:
        """:raises ValidationError: a field is missing there or is of another type"""
        return cls.model_validate(told)


def moment(seconds: float) -> datetime:
    """Seconds since the epoch as a time with zone, whole milliseconds."""
    return datetime.fromtimestamp(round(seconds, 3), UTC)


def moment_or_none(seconds: float | None) -> datetime | None:
    return None if seconds is None else moment(seconds)


def _moment_of_seconds(told: object) -> object:
    return moment(told) if isinstance(told, (int, float)) else told


Moment = Annotated[datetime, BeforeValidator(_moment_of_seconds)]
"""Seconds since the epoch in the core model."""
