# SPDX-License-Identifier: Apache-2.0
"""What all bodies share: unknown fields are refused, types are not coerced, times are RFC 3339 in UTC."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final, Self

from fastapi import Path
from pydantic import BeforeValidator, ConfigDict, Field

from orchestrator.catalogue.described import Described, StrictForm
from orchestrator.core.errors import Reason
from orchestrator.core.labels import MAX_DESCRIPTION, MAX_LABELS, About
from orchestrator.core.names import NAME_PATTERN
from orchestrator.core.plain_words import LINE_PATTERN

MAX_NAME: Final = 255
"""Longer text is no name at all; what a legal name is, core/names.py says, and refuses with a hint."""
_AS_DESCRIBED: Final = {"pattern": f"^{NAME_PATTERN}$"}

Name = Annotated[str, Field(max_length=MAX_NAME, json_schema_extra=_AS_DESCRIBED)]
NameInPath = Annotated[str, Path(description="What it is called", json_schema_extra=_AS_DESCRIBED)]
TenantInPath = Annotated[str, Path(max_length=MAX_NAME, description="Name of the tenant")]
VmInPath = Annotated[str, Path(description="Name or id", json_schema_extra=_AS_DESCRIBED)]


LabelValue = Annotated[str, Field(max_length=MAX_NAME)]
"""Which letters it may have is said once, in core/labels.py."""


class DescribeBody(StrictForm, example={"description": "nodes of team A", "labels": {"Team": "a"}}):
    """What people say of a thing; what is not named stays."""

    description: str | None = Field(default=None, max_length=MAX_DESCRIPTION, pattern=LINE_PATTERN)
    """null: it stays."""
    labels: dict[str, LabelValue | None] = Field(default={}, max_length=2 * MAX_LABELS)
    """By key; null takes one away."""


class AnswerBody(Described):
    """Built by us from core models. Its schema is called like the class without ``Answer``, or has a title."""

    model_config = ConfigDict(extra="forbid", frozen=True, from_attributes=True)

    @classmethod
    def copied(cls, source: object, **others: object) -> Self:
        """What ``source`` calls as the model does, with ``others`` for what it does not have, or has otherwise.

        :raises ValidationError: a field is missing or is of another type"""
        copied = {name: getattr(source, name) for name in cls.model_fields if name not in others}
        return cls.model_validate(copied | others)


class CopiedAnswer(AnswerBody):
    """Each field is called as that of the core model which it tells of."""

    @classmethod
    def of(cls, source: object) -> Self:
        """:raises ValidationError: a field is missing there or is of another type"""
        return cls.model_validate(source)


def moment(seconds: float) -> datetime:
    """Seconds since the epoch as a time with zone, whole milliseconds."""
    return datetime.fromtimestamp(round(seconds, 3), UTC)


def moment_or_none(seconds: float | None) -> datetime | None:
    return None if seconds is None else moment(seconds)


LabelsByKey = Annotated[dict[str, str], BeforeValidator(dict)]
"""Pairs in the core model."""


def _moment_of_seconds(value: object) -> object:
    return moment(value) if isinstance(value, (int, float)) else value


Moment = Annotated[datetime, BeforeValidator(_moment_of_seconds)]
"""Seconds since the epoch in the core model."""


class AboutAnswer(AnswerBody):
    """With what people say of the thing."""

    description: str
    """What people say of it."""
    labels: LabelsByKey
    """Values by key."""

    @classmethod
    def copied_about(cls, source: object, about: About, **others: object) -> Self:
        """As :meth:`copied`."""
        return cls.copied(source, description=about.description, labels=about.labels, **others)


class ProblemReason(AnswerBody, copies=Reason):
    """Why something was refused for one group of hosts, GPUs or fields."""


class ProblemAnswer(AnswerBody):
    """What went wrong. ``code`` is stable, ``detail`` is for people."""

    type: str
    """Kind of it."""
    title: str
    """For people."""
    status: int
    """The HTTP status."""
    detail: str
    """One sentence for people."""
    family: str
    """Kind of the error; fixes status and whether trying again helps."""
    code: str
    """Stable dotted code; docs/reference/errors.md lists them."""
    hint: str | None
    """What to do about it."""
    operator_details: str | None
    """What the host, libvirt or a driver said; only told to operators."""
    reasons: tuple[ProblemReason, ...]
    """Why not, each with the hosts, GPUs or fields it is about."""
