# SPDX-License-Identifier: Apache-2.0
"""Which operations this process runs, on which host, and which wait for a place there."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.ports.store.operations import DueOperation


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """``workers``: runs at once in this process. ``per_host``: runs at once on a host, of all controllers."""

    workers: int
    per_host: int


class RunPlaces:
    """Counted in memory; safe for threads. An operation stands in one line or has one place."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._lock = threading.Lock()
        self._hosts: dict[str, str] = {}
        """Of the operations that have a place."""
        self._taken: Counter[str] = Counter()
        """Places, by host."""
        self._running: set[str] = set()
        self._lines: dict[str, deque[DueOperation]] = {}
        self._in_line: set[str] = set()
        self._closed = False

    def stand_in_line(self, new: Iterable[DueOperation]) -> None:
        """Those that neither wait nor have a place."""
        with self._lock:
            for one in new:
                operation = one.operation
                if operation not in self._in_line and operation not in self._hosts:
                    self._in_line.add(operation)
                    self._lines.setdefault(one.host, deque()).append(one)

    def take(self) -> DueOperation | None:
        """One for whom there is a place, which it has from now on: first come, first served on each host."""
        with self._lock:
            if self._closed or len(self._hosts) >= self._bounds.workers:
                return None
            host = next((host for host in self._lines if self._taken[host] < self._bounds.per_host), None)
            if host is None:
                return None
            line = self._lines.pop(host)
            one = line.popleft()
            if line:
                self._lines[host] = line  # now behind the other hosts
            self._in_line.discard(one.operation)
            self._have(one.operation, host)
            return one

    def give_up_waiting(self) -> None:
        """Nobody stands in line any more."""
        with self._lock:
            self._lines, self._in_line = {}, set()

    def close(self) -> None:
        """No place is given to anybody any more."""
        with self._lock:
            self._closed = True

    def begin(self, operation: str, host: str) -> bool:
        """It runs, whether a place was kept for it or not; False: it runs already."""
        with self._lock:
            if operation in self._running:
                return False
            self._running.add(operation)
            if operation not in self._hosts:
                self._have(operation, host)
            return True

    def leave(self, operation: str) -> None:
        """Its place is free."""
        with self._lock:
            self._running.discard(operation)
            host = self._hosts.pop(operation, None)
            if host is not None:
                self._taken[host] -= 1
                if not self._taken[host]:
                    del self._taken[host]

    def known(self) -> frozenset[str]:
        """Operations that have a place or wait for one."""
        with self._lock:
            return frozenset(self._hosts.keys() | self._in_line)

    def running(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._running)

    def _have(self, operation: str, host: str) -> None:
        self._hosts[operation] = host
        self._taken[host] += 1
