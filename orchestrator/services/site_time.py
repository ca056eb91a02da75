# SPDX-License-Identifier: Apache-2.0
"""The time that what cannot be taken back goes by: leases that end, records that are forgotten.

A wall clock may be wrong: until it is set after a start, on one of several controllers, after a machine was suspended.
So nobody acts by it. What surely has passed is kept in the database as a mark, and grows by the clock of each process
that only grows. It is set by the database's clock, which all controllers share, as long as both agree. When they do
not (the clock was set, or no controller ran for a while) time goes on from the mark, until the clock has run evenly
for so long that somebody would have set it right. So what is due late ends late, and nothing ends early.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from orchestrator.ports.clock import Clock
from orchestrator.ports.timers import TimerHealth
from orchestrator.store.database import Store

EVEN_FOR_S: Final = 3600.0
"""So long a clock that disagrees with the mark has to run evenly before it is believed."""
_JUMP_S: Final = 60.0
_APART_S: Final = 30.0
"""So far a controller's clock may be from the database's: of two that are a minute apart one is farther."""
_RESTART_S: Final = 600.0
"""A server that was away for no longer need not wonder: so much may be missing from the mark at its start."""
_MARK_EVERY_S: Final = 60.0
log = logging.getLogger(__name__)


class SiteTime:
    """Safe to call from many threads. :meth:`look` is to be called again and again."""

    def __init__(self, store: Store, clock: Clock, *, ask_database: bool = True) -> None:
        """It begins from the mark. ``ask_database``: its own clock counts where it has one; else that of this process.

        :raises WorldError: the database is away"""
        self._store = store
        self._ask_database = ask_database
        self._clock = clock
        self._lock = threading.Lock()
        self._even_since: float | None = None
        """Since when, on the clock that only grows, a clock that is not believed runs evenly. None: it is believed."""
        self._looked_at = clock.monotonic()
        self._ahead_s = 0.0
        """How far the clock of this process is before the database's; negative: behind."""
        self._shown, mark = self._read()
        self._passed = self._shown if mark is None else mark
        self._look(allowed_s=_RESTART_S)

    def now(self) -> float:
        """Seconds since 1970, UTC: it is surely no earlier."""
        with self._lock:
            return min(self._passed, self._shown) + self._since()

    def look(self) -> None:
        """Compare the clocks with the mark. :raises WorldError: the database is away"""
        with self._lock:
            self._look()

    def health(self) -> TimerHealth:
        """Its error says that the clock is not believed, or that this process has another one than the others."""
        with self._lock:
            error, ago_s = self._apart() if abs(self._ahead_s) > _APART_S else None, self._since()
            if self._even_since is not None:
                left_s = EVEN_FOR_S - (self._clock.monotonic() - self._even_since)
                error = (
                    f"{_disagreement(self._shown - self._passed)}: leases and records wait; is it right? "
                    f"Unless it is set, it is believed in {max(left_s, 0) / 60:.0f} minutes"
                )
            return TimerHealth(
                name="time", every_s=_MARK_EVERY_S, good_ago_s=ago_s, failed=int(bool(error)), error=error
            )

    def _since(self) -> float:
        return self._clock.monotonic() - self._looked_at

    def _read(self) -> tuple[float, float | None]:
        """What the clock shows, and the mark."""
        with self._store.read() as tx:
            shown, mark = tx.time.shown() if self._ask_database else None, tx.time.mark()
        own = self._clock.now()
        self._ahead_s = 0.0 if shown is None else own - shown
        return own if shown is None else shown, mark

    def _apart(self) -> str:
        way = "ahead of" if self._ahead_s > 0 else "behind"
        return (
            f"this controller's clock is {abs(self._ahead_s):.0f} s {way} the database's: "
            "what it writes down has wrong times; set its time service right (timedatectl)"
        )

    def _look(self, allowed_s: float = _JUMP_S) -> None:
        """``allowed_s``: so far clock and mark may be apart."""
        shown, mark = self._read()
        monotonic, since_s = self._clock.monotonic(), self._since()
        passed = max(self._passed + since_s, mark or 0.0)
        even = abs(shown - self._shown - since_s) <= _JUMP_S
        self._judge(shown - passed, monotonic, even=even, agrees=abs(shown - passed) <= allowed_s)
        self._passed = passed if self._even_since is not None else shown
        self._shown, self._looked_at = shown, monotonic
        if mark is None or abs(self._passed - mark) >= _MARK_EVERY_S:
            with self._store.begin() as tx:
                tx.time.put_mark(self._passed)

    def _judge(self, ahead_s: float, monotonic: float, *, even: bool, agrees: bool) -> None:
        if agrees:
            self._even_since = None
        elif self._even_since is None or not even:
            self._even_since = monotonic
            log.error("%s; leases and records wait for it to run evenly", _disagreement(ahead_s))
        elif monotonic - self._even_since >= EVEN_FOR_S:
            log.warning("%s, and has run evenly since: it is believed", _disagreement(ahead_s))
            self._even_since = None


def _disagreement(ahead_s: float) -> str:
    way = "ahead of" if ahead_s > 0 else "behind"
    return f"the clock is {abs(ahead_s):.0f} s {way} the time that has surely passed"
