# SPDX-License-Identifier: Apache-2.0
"""What is sent to a collector of OpenTelemetry: metrics of one source, and lines of the log of what happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Attributes = Mapping[str, str]
Point = tuple[Attributes, float]
Severity = Literal["info", "warning", "error"]


@dataclass(frozen=True, kw_only=True)
class MetricSeries:
    """One metric of one source."""

    name: str
    help: str
    unit: str
    """As UCUM writes it; empty: it counts things."""
    counter: bool
    points: list[Point]


@dataclass(frozen=True, kw_only=True)
class EventLine:
    """Something that happened. ``at``: seconds since the epoch, UTC."""

    name: str
    text: str
    severity: Severity
    at: float
    attributes: Attributes


@dataclass(frozen=True, kw_only=True)
class NotTaken:
    """Why the collector has not taken something."""

    why: str
    extent: Literal["now", "lasting", "part"]
    """Nothing of it now; nothing, and it would refuse the same again; or only a part of it was refused, for good."""


class Telemetry(Protocol):
    """A collector. Both calls end in some seconds, and return None when all was taken."""

    def metrics(self, source: Attributes, series: Sequence[MetricSeries], at: float) -> NotTaken | None:
        """``source``: attributes of whom they are; ``at``: when they were read, seconds since the epoch."""

    def events(self, source: Attributes, lines: Sequence[EventLine]) -> NotTaken | None:
        """In the order in which they happened."""

    def close(self) -> None:
        """What waits ends at once."""
