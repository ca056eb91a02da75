# SPDX-License-Identifier: Apache-2.0
"""What has been asked for: counts per demand, halved now and then so that old habits fade."""

from __future__ import annotations

from orchestrator.core.placement.state_table import Demand

_FIRST_RENEWAL = 256
_LAST_RENEWAL = 65536


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
