# SPDX-License-Identifier: Apache-2.0
"""Something done again and again on a thread of its own, which no exception ends."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from orchestrator.core.contained import Contained
from orchestrator.core.errors import WorldError
from orchestrator.ports.timers import TimerHealth

log = logging.getLogger(__name__)


@dataclass
class Course:
    """How the rounds of one timer go. Written by its thread alone."""

    name: str
    every_s: float
    _good_at: float = field(default_factory=time.monotonic)
    _failed: int = 0
    _error: str | None = None

    def round(self, action: Callable[[], object]) -> None:
        """Do it once. What goes wrong is logged and counted and goes no further: the next round is another try."""
        with Contained(self._went_wrong):
            action()
            self._good_at, self._error = time.monotonic(), None

    def health(self) -> TimerHealth:
        """As it is now."""
        return TimerHealth(
            name=self.name,
            every_s=self.every_s,
            good_ago_s=time.monotonic() - self._good_at,
            failed=self._failed,
            error=self._error,
        )

    def _went_wrong(self, error: Exception) -> None:
        self._failed += 1
        if isinstance(error, WorldError):  # the database is away: the next round may find it again
            self._error = error.message
            log.warning("%s: %s: %s", self.name, error.message, error.details)
        else:
            self._error = f"unexpected {type(error).__name__}"
            log.error("%s broke; it is tried again in %g s", self.name, self.every_s, exc_info=error)


class Timer:
    """Does every one of ``actions`` (by name) each ``seconds`` from :meth:`start` until :meth:`stop`; never one twice
    at once, and one that fails keeps none of the others from its turn. Between two rounds it rests for a tenth of that
    time at least, however long they take, unless somebody calls :meth:`soon`."""

    def __init__(self, actions: Mapping[str, Callable[[], object]], seconds: float) -> None:
        self._actions = [(Course(name, seconds), action) for name, action in actions.items()]
        self._seconds = seconds
        self._stopping, self._due = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="timer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns at once; a running action ends by itself."""
        self._stopping.set()
        self._due.set()

    def soon(self) -> None:
        """A round begins now, or when the one that is under way has ended."""
        self._due.set()

    def health(self) -> tuple[TimerHealth, ...]:
        """Of every action."""
        return tuple(course.health() for course, _ in self._actions)

    def _run(self) -> None:
        rest_s = self._seconds
        while True:
            self._due.wait(rest_s)
            self._due.clear()
            if self._stopping.is_set():
                return
            began = time.monotonic()
            for course, action in self._actions:
                course.round(action)
            rest_s = max(self._seconds - (time.monotonic() - began), self._seconds / 10)
