# SPDX-License-Identifier: Apache-2.0
"""How many refusals of strangers are written down one by one: whoever may do nothing must not fill the database."""

from __future__ import annotations

from threading import Lock
from typing import Final

MOST: Final = 60
WINDOW_S: Final = 60.0


class RefusalBound:
    """At most ``most`` in a window of seconds; the others are counted."""

    def __init__(self, most: int = MOST, window_s: float = WINDOW_S) -> None:
        self._most = most
        self._window_s = window_s
        self._lock = Lock()
        self._began = float("-inf")
        self._count = 0

    def left_out(self, now: float) -> int | None:
        """None: this one is only counted. Else it is to be written down, and how many before it were not."""
        with self._lock:
            missed = 0
            if not 0 <= now - self._began < self._window_s:
                missed = max(0, self._count - self._most)
                self._began, self._count = now, 0
            self._count += 1
            return missed if self._count <= self._most else None
