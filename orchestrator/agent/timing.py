# SPDX-License-Identifier: Apache-2.0
"""Waiting and jitter of the agent, in one place so that tests need not wait."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Protocol


class Timing(Protocol):
    def monotonic(self) -> float:
        """Seconds that only grow."""

    def sleep(self, seconds: float) -> None: ...

    def jitter(self, seconds: float) -> float:
        """Between half of ``seconds`` and one and a half times as much."""


@dataclass(frozen=True)
class RealTiming:
    """The host's own clock."""

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def jitter(self, seconds: float) -> float:
        return seconds * random.uniform(0.5, 1.5)  # noqa: S311 - spreads retries, guards nothing
