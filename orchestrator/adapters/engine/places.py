# SPDX-License-Identifier: Apache-2.0
"""Which operations this process runs, and which of those are at work. The queue bounds how many run on a host."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from orchestrator.store.records import DueOperation

HELD_UP_S: Final = 5.0
"""A run that lasts longer mostly waits for its host, and no longer counts among those at work."""
COMPANIONS: Final = 4
"""So many times as many as work side by side may be held up by their hosts."""
_PLAYS: Final = frozenset(
    {"provision_vm", "add_host", "remove_host", "upgrade_agent", "provision_host", "upgrade_driver"}
)
"""Kinds that run Ansible here: they are at work however long they last."""


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """``workers``: runs at work at once in this process. ``per_host``: runs at once on a host, of all controllers; and
    in guests of a tenant, which take half of the workers at most."""

    workers: int
    per_host: int

    @property
    def most(self) -> int:
        """Runs at once in this process, held up ones included."""
        return self.workers * COMPANIONS


@dataclass(frozen=True, kw_only=True)
class _Place:
    plays: bool
    in_guest: bool
    since: float


class RunPlaces:
    """Counted in memory; safe for threads."""

    def __init__(self, bounds: Bounds, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock``: seconds that only grow."""
        self._bounds = bounds
        self._clock = clock
        self._lock = threading.Lock()
        self._running: set[str] = set()
        """Operations, those without a place included."""
        self._places: dict[str, _Place] = {}
        """By operation."""

    def begin(self, operation: str) -> bool:
        """It runs here, and may wait for a place; False: it runs already."""
        with self._lock:
            new = operation not in self._running
            self._running.add(operation)
            return new

    def take_now(self, run: DueOperation) -> bool:
        """Whether there is a worker for it; then it has one."""
        with self._lock:
            if not self._is_free(run):
                return False
            self._places[run.operation] = _Place(plays=run.kind in _PLAYS, in_guest=run.in_guest, since=self._clock())
            return True

    def leave(self, operation: str) -> None:
        """It runs no longer, and its place is free."""
        with self._lock:
            self._running.discard(operation)
            self._places.pop(operation, None)

    def running(self) -> frozenset[str]:
        """Operations that run here, or will as soon as there is a worker."""
        with self._lock:
            return frozenset(self._running)

    def _is_free(self, run: DueOperation) -> bool:
        begun_after = self._clock() - HELD_UP_S
        places = self._places.values()
        at_work = sum(place.plays or place.since > begun_after for place in places)
        if at_work >= self._bounds.workers or len(places) >= self._bounds.most:
            return False
        return not run.in_guest or sum(place.in_guest for place in places) < max(self._bounds.workers // 2, 1)
