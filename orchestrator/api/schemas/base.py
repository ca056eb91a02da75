# SPDX-License-Identifier: Apache-2.0
"""What all bodies share: unknown fields are refused, types are not coerced, times are RFC 3339 in UTC."""

from __future__ import annotations

from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict


class RequestBody(BaseModel):
    """Strict: ``"4"`` is not a number and a misspelt field is a mistake."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class AnswerBody(BaseModel):
    """Built by us from core models."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def moment(seconds: float) -> datetime:
    """Seconds since the epoch as a time with zone, whole milliseconds."""
    return datetime.fromtimestamp(round(seconds, 3), UTC)


def moment_or_none(seconds: float | None) -> datetime | None:
    return None if seconds is None else moment(seconds)
