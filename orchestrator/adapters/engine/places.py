# SPDX-License-Identifier: Apache-2.0
"""Which operations this process runs, and which of those are at work, in all and in each line.

The queue bounds how many of a line all controllers hold: more than are at work here, so that one begins when another
ends and not when the queue is asked again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

from orchestrator.store.records import DueOperation

HELD_UP_S: Final = 5.0
"""A run that lasts longer mostly waits for its host, and no longer counts among those at work."""
COMPANIONS: Final = 4
"""So many times as many as work side by side may be held up by their hosts."""
AHEAD: Final = 2
"""So many times as many runs as may be at work are held, the others until one ends."""
_PLAYS: Final = frozenset(
    {"provision_vm", "add_host", "remove_host", "upgrade_agent", "provision_host", "upgrade_driver"}
)
"""Kinds that run Ansible here: they are at work however long they last."""


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Of this process. ``workers``: runs at work at once. ``per_host``: runs at once on a host; beside them as many
    that copy disks there, half of all places at most; and in guests of a tenant, half of the workers at most."""

    workers: int
    per_host: int

    @property
    def most(self) -> int:
        """Runs that have a place at once, held up ones included."""
        return self.workers * COMPANIONS

    @property
    def held(self) -> int:
        """Runs that this process takes off the queue at once."""
        return AHEAD * self.most

    @property
    def held_per_host(self) -> int:
        """Runs of a line that all controllers take off the queue at once, which bounds those at work on a host."""
        return AHEAD * min(self.per_host, self.workers)


@dataclass(frozen=True, kw_only=True)
class _Place:
    line: str
    plays: bool
    in_guest: bool
    copies: bool
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
        self._freed: WeakValueDictionary[str, threading.Condition] = WeakValueDictionary()
        """By line: a place of it. Who waits holds it, and it goes with the last of them."""

    def begin(self, operation: str) -> bool:
        """It runs here, and may wait for a place; False: it runs already."""
        with self._lock:
            new = operation not in self._running
            self._running.add(operation)
            return new

    def take(self, run: DueOperation, patience_s: float) -> bool:
        """Whether there is a place in its line and a worker for it within that time; then it has them. One that frees
        its place is noticed at once, a worker that another line frees is not."""
        with self._lock:
            freed = self._freed.setdefault(run.line, threading.Condition(self._lock))
            if not freed.wait_for(partial(self._is_free, run), patience_s):
                return False
            self._places[run.operation] = _Place(
                line=run.line, plays=run.kind in _PLAYS, in_guest=run.in_guest, copies=run.copies, since=self._clock()
            )
            return True

    def leave(self, operation: str) -> None:
        """It runs no longer, and its place is free."""
        with self._lock:
            self._running.discard(operation)
            place = self._places.pop(operation, None)
            if place is not None and (freed := self._freed.get(place.line)) is not None:
                freed.notify()

    def running(self) -> frozenset[str]:
        """Operations that run here, or will as soon as there is a place."""
        with self._lock:
            return frozenset(self._running)

    def _is_free(self, run: DueOperation) -> bool:
        begun_after = self._clock() - HELD_UP_S
        places = self._places.values()
        at_work = sum(place.plays or place.since > begun_after for place in places)
        if at_work >= self._bounds.workers or len(places) >= self._bounds.most:
            return False
        if sum(place.line == run.line for place in places) >= self._bounds.per_host:
            return False
        if run.copies and sum(place.copies for place in places) >= self._bounds.most // 2:
            return False
        return not run.in_guest or sum(place.in_guest for place in places) < max(self._bounds.workers // 2, 1)
