# SPDX-License-Identifier: Apache-2.0
"""Which operations this process runs, on which host, and which wait for a place there."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
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
    line: str
    plays: bool
    in_guest: bool
    since: float


class RunPlaces:
    """Counted in memory; safe for threads. An operation stands in one line or has one place. Lines are those of
    store/records.DueOperation."""

    def __init__(self, bounds: Bounds, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock``: seconds that only grow."""
        self._bounds = bounds
        self._clock = clock
        self._lock = threading.Lock()
        self._places: dict[str, _Place] = {}
        """By operation."""
        self._taken: Counter[str] = Counter()
        """Places, by line."""
        self._running: set[str] = set()
        self._lines: dict[str, deque[DueOperation]] = {}
        self._in_line: set[str] = set()
        self._closed = False

    def stand_in_line(self, new: Iterable[DueOperation]) -> None:
        """Those that neither wait nor have a place."""
        with self._lock:
            for one in new:
                operation = one.operation
                if operation not in self._in_line and operation not in self._places:
                    self._in_line.add(operation)
                    self._lines.setdefault(one.line, deque()).append(one)

    def take(self) -> DueOperation | None:
        """One for whom there is a place, which it has from now on: first come, first served in each line."""
        with self._lock:
            if self._closed or not self._has_room():
                return None
            name = next((name for name in self._lines if self._may_go_on(name)), None)
            if name is None:
                return None
            line = self._lines.pop(name)
            one = line.popleft()
            if line:
                self._lines[name] = line  # now behind the others
            self._in_line.discard(one.operation)
            self._have(one)
            return one

    def _has_room(self) -> bool:
        begun_after = self._clock() - HELD_UP_S
        at_work = sum(place.plays or place.since > begun_after for place in self._places.values())
        return at_work < self._bounds.workers and len(self._places) < self._bounds.most

    def _may_go_on(self, line: str) -> bool:
        if self._taken[line] >= self._bounds.per_host:
            return False
        in_guests = sum(place.in_guest for place in self._places.values())
        return not self._lines[line][0].in_guest or in_guests < max(self._bounds.workers // 2, 1)

    def take_now(self, one: DueOperation) -> bool:
        """Whether there is a worker for it, which was found a place in its line elsewhere; then it has one."""
        with self._lock:
            if self._closed or not self._has_room():
                return False
            if one.operation not in self._places:
                self._have(one)
            return True

    def give_up_waiting(self) -> None:
        """Nobody stands in line any more."""
        with self._lock:
            self._lines, self._in_line = {}, set()

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """No place is given to anybody any more."""
        with self._lock:
            self._closed = True

    def begin(self, one: DueOperation) -> bool:
        """It runs, whether a place was kept for it or not; False: it runs already."""
        with self._lock:
            if one.operation in self._running:
                return False
            self._running.add(one.operation)
            if one.operation not in self._places:
                self._have(one)
            return True

    def leave(self, operation: str) -> None:
        """Its place is free."""
        with self._lock:
            self._running.discard(operation)
            place = self._places.pop(operation, None)
            if place is not None:
                self._taken[place.line] -= 1
                if not self._taken[place.line]:
                    del self._taken[place.line]

    def known(self) -> frozenset[str]:
        """Operations that have a place or wait for one."""
        with self._lock:
            return frozenset(self._places.keys() | self._in_line)

    def running(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._running)

    def _have(self, one: DueOperation) -> None:
        place = _Place(line=one.line, plays=one.kind in _PLAYS, in_guest=one.in_guest, since=self._clock())
        self._places[one.operation] = place
        self._taken[one.line] += 1
