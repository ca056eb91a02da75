# SPDX-License-Identifier: Apache-2.0
"""How often repairs are tried, on what they may rely, and how long operations wait for a host. By the monotonic clock
of this server: a wall clock that jumps neither hastens a repair nor keeps one back."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping

from orchestrator.core.operation import HostWait
from orchestrator.ports.clock import Clock

_HOUR_S = 3600.0
_MAX_KEPT = 10_000


class Pacing:
    """Of one server. Safe to call from many threads."""

    def __init__(
        self,
        clock: Clock,
        *,
        fresh_s: float = 300.0,
        again_s: float = 900.0,
        per_hour: int = 20,
        host_wait_s: float = 900.0,
    ) -> None:
        """``fresh_s``: nothing is done on a host that this server has not compared for longer. ``again_s``: so long
        after a repair that did not help, the same is not tried again by itself. ``per_hour``: so many are begun
        without being asked, on all hosts together. ``host_wait_s``: so long operations wait for their host."""
        self._clock = clock
        self._fresh_s, self._again_s, self._per_hour = fresh_s, again_s, per_hour
        self._host_wait_s = host_wait_s
        self._lock = threading.Lock()
        self._compared: dict[str, float] = {}
        self._ended: dict[str, float] = {}
        self._begun = deque[float]()
        self._host_waits: dict[str, dict[tuple[str, float], float]] = {}

    def compared(self, host: str) -> None:
        """What is found there was found now."""
        with self._lock:
            self._compared[host] = self._clock.monotonic()

    def is_fresh(self, host: str) -> bool:
        """Whether what is found there was found lately, by this server itself."""
        with self._lock:
            at = self._compared.get(host)
            return at is not None and self._clock.monotonic() - at <= self._fresh_s

    def may_try_again(self, operation: str) -> bool:
        """Whether the repair that this operation was ended long enough ago; counted from when that was first asked."""
        with self._lock:
            if len(self._ended) >= _MAX_KEPT:
                self._ended.clear()
            now = self._clock.monotonic()
            return now - self._ended.setdefault(operation, now) >= self._again_s

    def waited_long(self, host: str, missing: Mapping[str, HostWait]) -> tuple[str, ...]:
        """Of the operations that miss the host now, by id: those that this server has known to for long enough."""
        with self._lock:
            now, known = self._clock.monotonic(), self._host_waits.pop(host, {})
            since = {(one, wait.since): known.get((one, wait.since), now) for one, wait in missing.items()}
            if since:
                self._host_waits[host] = since
            return tuple(one for (one, _), first in since.items() if now - first >= self._host_wait_s)

    def may_begin(self) -> bool:
        """One more that nobody asked for; it counts when it may."""
        with self._lock:
            now = self._clock.monotonic()
            while self._begun and now - self._begun[0] >= _HOUR_S:
                self._begun.popleft()
            if len(self._begun) >= self._per_hour:
                return False
            self._begun.append(now)
            return True
