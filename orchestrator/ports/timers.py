# SPDX-License-Identifier: Apache-2.0
"""What is done again and again, and when it last went well."""

from __future__ import annotations

from dataclasses import dataclass

_STALLED_S = 300.0
_STALLED_ROUNDS = 3


@dataclass(frozen=True, kw_only=True)
class TimerHealth:
    """One timer of this process. Seconds are of a clock that only grows."""

    name: str
    every_s: float
    good_ago_s: float
    """Since its last round that went well; before the first one, since the start."""
    failed: int
    """Rounds that went wrong since the start."""
    error: str | None
    """What went wrong in the last round; None: it went well."""

    vital: bool = True
    """The server is not well without it."""

    @property
    def stalled(self) -> bool:
        """Nothing has gone well for so long that it can be no passing trouble."""
        return self.vital and self.good_ago_s > _STALLED_S + _STALLED_ROUNDS * self.every_s
