# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations


class FakeTiming:
    """Waiting takes no time and is counted."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def jitter(self, seconds: float) -> float:
        return seconds
