# SPDX-License-Identifier: Apache-2.0
"""What would fit if every VM could be rearranged for free: the ceiling that placement is measured against."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.core.placement.fleet import Fleet
from orchestrator.core.placement.state_table import Demand
from tests.bench.placement.minimum import minimum_bins


class Ceiling:
    """Counts of demands against the GPUs of a fleet, CPU and memory of hosts left out.

    ``exact`` is False once a demand came in that several geometries or cuts could serve, or whose table has only
    a bound: ``fits`` may then say yes to what would not fit, never the other way round.
    """

    def __init__(self, fleet: Fleet, counts: Mapping[Demand, int] | None = None) -> None:
        self.exact = True
        self._tables = fleet.tables
        self._gpus = fleet.usable
        self._counts: dict[tuple[int, int], dict[str, int]] = {}
        self._whole: dict[str, int] = {}
        self._bins: dict[tuple[int, int], int] = {}
        self._homes: dict[Demand, tuple[int, int, str] | None] = {}
        for demand, count in (counts or {}).items():
            self.add(demand, count)

    def fits(self, demand: Demand, count: int = 1) -> bool:
        """Whether all that is counted and ``count`` more of ``demand`` fit together."""
        self.add(demand, count)
        fits = self._feasible()
        self.add(demand, -count)
        return fits

    def add(self, demand: Demand, count: int = 1) -> None:
        """Count devices in, or out when ``count`` is negative."""
        if demand.whole_gpus:
            self._whole[demand.profile] = self._whole.get(demand.profile, 0) + count
            return
        home = self._home(demand)
        if home is None:
            self.exact = False
            return
        table, cut, shape = home
        counts = self._counts.setdefault((table, cut), {})
        counts[shape] = counts.get(shape, 0) + count
        self._bins.pop((table, cut), None)

    def minimum_gpus(self) -> int:
        """GPUs that what is counted needs at least."""
        return sum(self._per_table().values()) + self._whole_gpus()

    def _whole_gpus(self) -> int:
        return sum(int(name.removeprefix("gpu:")) * count for name, count in self._whole.items())

    def _per_table(self) -> dict[int, int]:
        used: dict[int, int] = {}
        for (table, cut), counts in self._counts.items():
            bins = self._bins.get((table, cut))
            if bins is None:
                found = minimum_bins(self._tables[table].cuts[cut], counts)
                self.exact = self.exact and found.exact
                bins = self._bins[table, cut] = found.bins
            used[table] = used.get(table, 0) + bins
        return used

    def _feasible(self) -> bool:
        used = self._per_table()
        if any(bins > self._gpus.get(table, 0) for table, bins in used.items()):
            return False
        return sum(used.values()) + self._whole_gpus() <= sum(self._gpus.values())

    def _home(self, demand: Demand) -> tuple[int, int, str] | None:
        """The only place a demand can live in, None when there is a choice."""
        if demand not in self._homes:
            options = [(table.number, cut, shape) for table in self._tables for cut, shape in table.options(demand)]
            self._homes[demand] = options[0] if len(options) == 1 else None
        return self._homes[demand]
