# SPDX-License-Identifier: Apache-2.0
"""Sums and percentiles of a simulation, in constant memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

_PER_DECADE = 40
"""Latency classes per factor of ten: percentiles are right within 6 %."""


@dataclass(slots=True)
class Latencies:
    """A histogram over logarithmic classes of nanoseconds."""

    classes: dict[int, int] = field(default_factory=dict)
    count: int = 0

    def add(self, nanoseconds: int) -> None:
        """Count one latency."""
        at = int(math.log10(max(nanoseconds, 1)) * _PER_DECADE)
        self.classes[at] = self.classes.get(at, 0) + 1
        self.count += 1

    def percentile_us(self, share: float) -> float | None:
        """The latency that ``share`` (0 to 1) of all do not exceed, microseconds; None without any."""
        left = share * self.count
        for at in sorted(self.classes):
            left -= self.classes[at]
            if left <= 0:
                return round(10 ** ((at + 1) / _PER_DECADE) / 1000, 2)
        return None


class Score:
    """What ``summary`` says. Weights are GPU memory demanded."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin again, for example after a warm-up."""
        self.latencies = Latencies()
        self._count = [0, 0]
        self._weight = [0, 0]
        self._preempted = 0

    def latency(self, nanoseconds: int) -> None:
        """One decision took this long."""
        self.latencies.add(nanoseconds)

    def accepted(self, weight: int, preempted: int) -> None:
        """One request was placed, after that many VMs of lower priority were stopped."""
        self._count[1] += 1
        self._weight[1] += weight
        self._preempted += preempted

    def rejected(self, weight: int) -> None:
        """One request was refused."""
        self._count[0] += 1
        self._weight[0] += weight

    def summary(self) -> dict[str, float | int | None]:
        """Shares are between 0 and 1; None where there was nothing to measure."""
        offered, weight = sum(self._count), sum(self._weight)
        return {
            "requests": offered,
            "accepted": self._count[1],
            "count_acceptance": _share(self._count[1], offered),
            "weighted_acceptance": _share(self._weight[1], weight),
            "preempted": self._preempted,
            "latency_p50_us": self.latencies.percentile_us(0.5),
            "latency_p99_us": self.latencies.percentile_us(0.99),
            "latency_p999_us": self.latencies.percentile_us(0.999),
        }


def _share(part: float, whole: float) -> float | None:
    return round(part / whole, 6) if whole else None
