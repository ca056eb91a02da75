# SPDX-License-Identifier: Apache-2.0
"""A part of each day, in UTC, in which something may begin. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.core.errors import InvalidInput

_FORM: Final = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])", re.ASCII)
_DAY_MIN: Final = 24 * 60


@dataclass(frozen=True, slots=True)
class DailyWindow:
    """From the first minute to before the second one; over midnight where the first is the later one."""

    begin_min: int
    end_min: int
    """Minutes of a day of UTC."""

    def __str__(self) -> str:
        begin, end = (f"{minute // 60:02}:{minute % 60:02}" for minute in (self.begin_min, self.end_min))
        return f"{begin}-{end}"

    def is_open(self, now: float) -> bool:
        """``now``: seconds since 1970, which began at midnight."""
        return (_minute(now) - self.begin_min) % _DAY_MIN < (self.end_min - self.begin_min) % _DAY_MIN

    def opens_at(self, now: float) -> float | None:
        """When it opens next; None: it is open."""
        if self.is_open(now):
            return None
        return float((now // 60 + (self.begin_min - _minute(now)) % _DAY_MIN) * 60)


def open_together_at(windows: Sequence[DailyWindow], now: float) -> float | None:
    """``now``, or when all of them are open next; None: they never are. A time in which all are begins with one."""
    begins = (float((now // 60 + (window.begin_min - _minute(now)) % _DAY_MIN) * 60) for window in windows)
    moments = (at for at in (now, *begins) if at >= now and all(window.is_open(at) for window in windows))
    return min(moments, default=None)


def _minute(now: float) -> int:
    return int(now // 60) % _DAY_MIN


def parse_window(text: str) -> DailyWindow:
    """``22:00-05:00``.

    :raises InvalidInput: ``upgrade.window_invalid``
    """
    match = _FORM.fullmatch(text)
    begin, end = (0, 0) if match is None else (int(match[1]) * 60 + int(match[2]), int(match[3]) * 60 + int(match[4]))
    if begin == end:
        raise InvalidInput(
            "upgrade.window_invalid",
            f"{text[:40]!a} is no part of a day",
            hint="give two different times of day in UTC: 22:00-05:00",
        )
    return DailyWindow(begin, end)
