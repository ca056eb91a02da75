# SPDX-License-Identifier: Apache-2.0
"""How many refusals of one asker are written down one by one: whoever may do nothing must not fill the database."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import Final

MOST: Final = 60
WINDOW_S: Final = 60.0


@dataclass
class _Window:
    began: float
    count: int = 0


class RefusalBound:
    """At most ``most`` of each asker in a window of seconds; the others are counted."""

    def __init__(self, most: int = MOST, window_s: float = WINDOW_S) -> None:
        self._most = most
        self._window_s = window_s
        self._lock = Lock()
        self._windows: dict[str, _Window] = {}

    def left_out(self, asker: str, now: float) -> int | None:
        """None: this one is only counted. Else it is to be written down, and how many of the asker before it were
        not."""
        with self._lock:
            missed, window = 0, self._windows.get(asker)
            if window is None or not self._goes_on(window, now):
                missed = 0 if window is None else max(0, window.count - self._most)
                self._forget_others(now)
                window = self._windows[asker] = _Window(now)
            window.count += 1
            return missed if window.count <= self._most else None

    def _goes_on(self, window: _Window, now: float) -> bool:
        return 0 <= now - window.began < self._window_s

    def _forget_others(self, now: float) -> None:
        """Those that are over and of which everything is written down."""
        kept = {
            asker: window
            for asker, window in self._windows.items()
            if self._goes_on(window, now) or window.count > self._most
        }
        self._windows = kept
