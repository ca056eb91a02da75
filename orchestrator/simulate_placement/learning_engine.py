# SPDX-License-Identifier: Apache-2.0
"""An engine that learns what is asked for: counts per demand, halved now and then so that old habits fade."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from orchestrator.core.placement.engine import PlacementEngine
from orchestrator.core.placement.scores import Scores
from orchestrator.core.placement.state_table import Demand
from orchestrator.core.placement.views import HostView, Request

ScoresOf = Callable[[dict[Demand, float]], Scores]
"""Of what was asked for so far, by demand; it goes on changing."""
_FIRST_RENEWAL: Final = 256
_LAST_RENEWAL: Final = 65536


class Mix:
    """Learns the mix of requests."""

    def __init__(self) -> None:
        self.counts: dict[Demand, float] = {}
        self._count = 0
        self._renew_at = _FIRST_RENEWAL
        self._interval = _FIRST_RENEWAL

    def see(self, demand: Demand) -> bool:
        """Count one request. True: enough is new for the scores to be computed again."""
        self.counts[demand] = self.counts.get(demand, 0.0) + 1.0
        self._count += 1
        if self._count < self._renew_at:
            return False
        if self._interval < _LAST_RENEWAL:
            self._interval *= 2
        else:
            self._halve()
        self._renew_at = self._count + self._interval
        return True

    def _halve(self) -> None:
        """In place: scores keep hold of the counts."""
        kept = {known: count / 2 for known, count in self.counts.items() if count > 0.5}
        self.counts.clear()
        self.counts.update(kept)


class LearningEngine(PlacementEngine):
    """Told of every request, whether it is served or not."""

    def __init__(self, hosts: Iterable[HostView] = (), *, scores: ScoresOf | None = None) -> None:
        self._mix = Mix()
        super().__init__(hosts, scores=(scores or Scores)(self._mix.counts))

    def see(self, request: Request) -> None:
        """Learn from a request."""
        if self._mix.see(request.demand) and self.scores.learns:
            self.rankings.renew()
