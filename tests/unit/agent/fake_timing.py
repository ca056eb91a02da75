# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable


class FakeTiming:
    """Waiting takes no time and is counted."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        self.while_waiting: Callable[[], None] = lambda: None
        """What comes to pass meanwhile."""

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        self.while_waiting()

    def jitter(self, seconds: float) -> float:
        return seconds
