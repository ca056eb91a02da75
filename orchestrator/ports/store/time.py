# SPDX-License-Identifier: Apache-2.0
"""What time it is to the database."""

from __future__ import annotations

from typing import Protocol


class Time(Protocol):
    """Seconds since 1970, UTC."""

    def shown(self) -> float | None:
        """By the database's own clock. None: it has none but its machine's, which is this one."""

    def mark(self) -> float | None:
        """What has surely passed, as far as anybody has written it down; without that, when the newest record of the
        audit was written. None: there is none."""

    def no_earlier(self, shown: float) -> float:
        """``shown`` by a wall clock, or what has surely passed where that clock is behind: what is counted from there
        lasts as long as was asked."""

    def put_mark(self, passed: float) -> None: ...
