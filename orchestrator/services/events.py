# SPDX-License-Identifier: Apache-2.0
"""What happened in the fleet, for those who watch it: read in order, kept for a while."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from orchestrator.core.event import EventFilter, EventIds, FleetEvent
from orchestrator.services.site_time import SiteTime
from orchestrator.store.database import Store

PAGE: Final = 500
"""Events that are read at once."""
DEFAULT_KEPT: Final = 100_000
_AT_ONCE: Final = 2000
"""Forgotten in one transaction, which holds up other writers."""
_DAY_S: Final = 86_400.0
RECENT_S: Final = 3600.0
"""Who comes back within so long finds what happened, however much others did."""


@dataclass(frozen=True, kw_only=True)
class EventPage:
    """Part of the log."""

    events: tuple[FleetEvent, ...]
    """Oldest first."""
    pruned: int
    """The highest number that is no longer kept."""


@dataclass(kw_only=True)
class EventService:
    """The log of one site."""

    store: Store
    ids: EventIds

    def listen(self, notify: Callable[[], None]) -> None:
        """``notify`` is called after each commit of this process that added to the log; it may not wait."""
        self.store.when_events = notify

    def end(self) -> int:
        """The highest number that was given, up to which no event is missing any more."""
        with self.store.begin() as tx:
            return tx.events.newest()

    def new(self, after: int) -> EventPage:
        """The first with higher numbers; none below the last of them is missing any more. A question that finds nothing
        keeps nobody from writing."""
        with self.store.read() as tx:
            if tx.events.newest() <= after:
                return EventPage(events=(), pruned=tx.events.pruned())
        with self.store.begin() as tx:
            return EventPage(events=tx.events.new(after, most=PAGE), pruned=tx.events.pruned())

    def given(self) -> int:
        """The highest number that was given; lower ones may still be missing."""
        with self.store.read() as tx:
            return tx.events.newest()

    def page(self, after: int, until: int, only: EventFilter) -> EventPage:
        """Of those beyond ``after`` and not beyond ``until`` the first :data:`PAGE`."""
        with self.store.read() as tx:
            return EventPage(events=tx.events.between(after, until, only, most=PAGE), pruned=tx.events.pruned())

    def last(self, until: int, only: EventFilter, most: int) -> tuple[FleetEvent, ...]:
        """The last so many that are not beyond ``until``, oldest first."""
        with self.store.read() as tx:
            return tx.events.last(until, only, most=most)


@dataclass(frozen=True, kw_only=True)
class EventRetention:
    """``most`` events are kept at most, of the last hour ten times as many, and none for longer than ``days``."""

    store: Store
    time: SiteTime
    most: int
    days: float

    def round(self) -> int:
        """Forget what is due; how many that were."""
        forgotten = 0
        while True:
            with self.store.begin() as tx:
                now = self.time.now()
                count = tx.events.prune(
                    kept=self.most, before=now - self.days * _DAY_S, recent=now - RECENT_S, most=_AT_ONCE
                )
            forgotten += count
            if count < _AT_ONCE:
                return forgotten
