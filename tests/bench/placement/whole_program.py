# SPDX-License-Identifier: Apache-2.0
"""A linear program over whole numbers, as a value: what is asked of an optimizer, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Row:
    """``low`` ≤ the sum of coefficient times column ≤ ``high``."""

    low: float
    high: float
    terms: tuple[tuple[int, float], ...]
    """(column, coefficient)."""


@dataclass(slots=True)
class WholeProgram:
    """Columns are whole numbers from 0 to their upper bound; ``gains`` is what one unit of each is worth."""

    gains: list[float] = field(default_factory=list)
    uppers: list[int] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def column(self, upper: int, gain: float) -> int:
        """A new column; its number."""
        self.gains.append(gain)
        self.uppers.append(upper)
        return len(self.gains) - 1

    def bound(self, low: float, terms: list[tuple[int, float]], high: float) -> None:
        """A new row."""
        self.rows.append(Row(low, high, tuple(terms)))


@dataclass(frozen=True, slots=True)
class Answer:
    """The best values found and the most that any values could gain; ``proved`` when no better ones exist."""

    values: tuple[int, ...]
    gain: float
    bound: float
    proved: bool


Maximise = Callable[[WholeProgram, float], "Answer | None"]
"""Solve within that many seconds; None when nothing was found in time."""
