# SPDX-License-Identifier: Apache-2.0
"""Waiting for an operation, and how long its steps took."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from orchestrator.cli import clock
from orchestrator.cli.ages import show_time
from orchestrator.cli.output import shown


def waits_for(operation: Mapping[str, Any]) -> str | None:
    """The host that it waits for and since when, if its host is out of reach; or that its guest boots."""
    since = operation.get("waits_for_host_since")  # an older server says neither
    if since is None:
        return "its guest to boot" if operation.get("waits_for_guest") else None
    host = operation["waits_for_host"]
    return f"{'its host' if host is None else f'host {shown(host)}'} since {show_time(since)}"


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
