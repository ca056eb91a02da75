# SPDX-License-Identifier: Apache-2.0
"""Does the same for many hosts, several at a time. A worker that one of them stalls is replaced by another."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from orchestrator.core.contained import Contained

T = TypeVar("T")

SLOW_S: Final = 1.0
"""A worker that takes longer with one item is stalled: it is not counted in ``at_once``."""
MAX_STALLED_FACTOR: Final = 8
"""Stalled workers are replaced until there are this many times ``at_once``; then the other hosts wait."""
_BEAT_S: Final = 0.05
"""From one handful to the next where they are spread over time."""


@dataclass(kw_only=True)
class BoundedPool(Generic[T]):
    """One round. ``at_once``: how many work side by side, on threads of ``pool``."""

    pool: ThreadPoolExecutor
    at_once: int
    do: Callable[[T], None]
    errors: list[Exception] = field(default_factory=list)
    """What ``do`` raised."""
    _left: deque[T] = field(default_factory=deque)
    """May be begun now."""
    _later: deque[T] = field(default_factory=deque)
    """Not yet."""
    _since: dict[int, float] = field(default_factory=dict)
    """Worker → when it began with the one that it has now."""
    _workers: int = 0
    _change: threading.Condition = field(default_factory=threading.Condition)

    def work(
        self, items: Iterable[T], timeout_s: float, *, per_s: float | None = None, wait_for_stalled: bool = True
    ) -> None:
        """Returns when all are done, or after that long: those not begun by then are left out. Unless
        ``wait_for_stalled``, workers that the last ones stall go on alone. ``per_s``: no more than so many are begun
        in a second, by as few as can be: each one more is one more that others of this process wait
        for at every turn of the interpreter."""
        began = time.monotonic()
        end, released = began + timeout_s, 0
        with self._change:
            self._later.extend(items)
            while (now := time.monotonic()) < end and (self._later or self._left or self._since):
                if not (wait_for_stalled or self._later or self._left) and self._stalled(now) == len(self._since):
                    break
                due = len(self._later) if per_s is None else int((now - began) * per_s) + 1 - released
                behind = len(self._left)  # nobody has come to these since the handful before
                self._left.extend(self._later.popleft() for _ in range(min(due, len(self._later))))
                released += max(due, 0)
                self._start_workers(len(self._left) if per_s is None else max(behind, 1 - len(self._since)))
                beats = self._later or (self._left and per_s is not None)
                self._change.wait(min(_BEAT_S if beats else SLOW_S, end - now))
            self._left.clear()
            self._later.clear()

    def _start_workers(self, most: int) -> None:
        """Until ``at_once`` workers are not stalled; ``most`` at a time."""
        now = time.monotonic()
        working = len(self._since) - self._stalled(now)
        allowed = min(self.at_once - working, self.at_once * MAX_STALLED_FACTOR - len(self._since))
        for _ in range(min(allowed, most, len(self._left))):
            self._workers += 1
            self._since[self._workers] = now
            self.pool.submit(self._worker, self._workers)

    def _stalled(self, now: float) -> int:
        return sum(now - since > SLOW_S for since in self._since.values())

    def _worker(self, number: int) -> None:
        try:
            while taken := self._take(number):
                with Contained(self.errors.append):
                    self.do(*taken)
        finally:
            with self._change:
                del self._since[number]
                if not self._later:  # else the next handful comes by itself
                    self._change.notify()

    def _take(self, number: int) -> tuple[T] | None:
        """The next one; None: there is none left."""
        with self._change:
            if not self._left:
                return None
            self._since[number] = time.monotonic()
            return (self._left.popleft(),)
