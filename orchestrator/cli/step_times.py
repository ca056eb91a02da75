# SPDX-License-Identifier: Apache-2.0
"""How long the steps of an operation take."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from orchestrator.cli import clock


def seconds_of(step: Mapping[str, Any], moment: datetime | None) -> float | None:
    """How long a step took, or has been taking."""
    if step["started_at"] is None:
        return None
    start = datetime.fromisoformat(step["started_at"])
    end = datetime.fromisoformat(step["finished_at"]) if step["finished_at"] else moment
    return None if end is None else max(0.0, (end - start).total_seconds())


def now() -> datetime:
    """The moment, for steps that are running."""
    return datetime.fromtimestamp(clock.now(), UTC)
