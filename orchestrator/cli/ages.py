# SPDX-License-Identifier: Apache-2.0
"""Times as people read them; ``-o json`` has them exactly."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from orchestrator.cli.clock import now
from orchestrator.cli.output import shown

CLOCKS_DIFFER_S: Final = 5.0
_LEAST: Final = 3
"""Of fewer than so many of a unit, the next smaller one is said: ``90m`` says more than ``1h``."""
_SIZES: Final = ((86400 * 365, "y"), (86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_UNITS: Final = tuple((size * _LEAST, size, unit) for size, unit in _SIZES)


def seconds_since(moment: object) -> float | None:
    """Since an RFC 3339 time; never less than nothing, though clocks differ. None: it is none, whoever said it."""
    at = _time_of(moment)
    return None if at is None else max(0.0, now() - at.timestamp())


def _time_of(moment: object) -> datetime | None:
    try:
        parsed = datetime.fromisoformat(moment) if isinstance(moment, str) else None
    except ValueError:
        return None
    return parsed if parsed is not None and parsed.tzinfo is not None else None


def show_age(moment: object) -> str:
    """``35s``, ``12m``, ``5h``, ``3d``; ``-`` of what has no time."""
    seconds = seconds_since(moment)
    return "-" if seconds is None else show_span(seconds)


def show_span(seconds: float) -> str:
    """In the largest unit of which there are at least three, or the largest there is."""
    whole = int(seconds)
    for least, size, unit in _UNITS:
        if whole >= least:
            return f"{whole // size}{unit}"
    return f"{whole}s"


def seconds_until(moment: object) -> float:
    """An RFC 3339 time; less than nothing of one that is over, and of what is none."""
    at = _time_of(moment)
    return -1.0 if at is None else at.timestamp() - now()


def show_end(moment: object) -> str:
    """``in 29d``, ``over``; ``never`` of what has no end."""
    if moment is None:
        return "never"
    left = seconds_until(moment)
    return f"in {show_span(left)}" if left > 0 else "over"


def show_time(moment: object) -> str:
    """``2026-12-01 10:00:00 UTC (3d ago)``; what lies in the next seconds is now, as clocks differ."""
    at = _time_of(moment)
    if at is None:
        return shown(moment)
    span = now() - at.timestamp()
    text = f"{show_span(span)} ago" if span >= 0 else f"in {show_span(-span)}" if span < -CLOCKS_DIFFER_S else "now"
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC ({text})"


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
