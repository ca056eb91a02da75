# SPDX-License-Identifier: Apache-2.0
"""Time and fresh ids, so that nothing else reads a clock or draws random numbers."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Wall clock, seconds since the epoch, UTC. For showing and storing, never for waiting."""

    def monotonic(self) -> float:
        """Seconds that only grow. For time-outs."""

    def sleep(self, seconds: float) -> None: ...


class Ids(Protocol):
    def new_uuid(self) -> str:
        """A fresh random UUID, lower case."""
