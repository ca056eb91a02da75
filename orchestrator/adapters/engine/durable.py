# SPDX-License-Identifier: Apache-2.0
"""Operations on a durable queue: bounded in all and per host, one at a time per VM or host it is about.

The operations themselves say what has to run; a poll of them puts what is due into the queue. So an operation that was
stored is run whatever happened after, and one that waits for another takes a row and no thread. What this process has
stored is asked for by name, and the end of a run makes a poll only while some operation waits for another.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from orchestrator.adapters.engine.live_controllers import LiveControllers
from orchestrator.adapters.engine.timer import Course
from orchestrator.core.contained import Contained
from orchestrator.core.errors import WorldError
from orchestrator.ports.store.operations import DueOperation
from orchestrator.ports.store.transaction import Store
from orchestrator.ports.timers import TimerHealth

if TYPE_CHECKING:
    from orchestrator.adapters.engine.work_queue import WorkQueue

POLL_S = 1.5
"""Between two polls when nobody asks for one; a controller that has gone is known after four."""
_FORGET_EVERY = 300
RESTED_AFTER = 20
"""Beats without an operation that is due, after which the queue is closed: its library asks its database several times
a second. The next operation opens it again."""
log = logging.getLogger(__name__)


class Runs(Protocol):
    """What executes one operation (operations/runner.Runner)."""

    def run(self, operation_id: str, stopping: Callable[[], bool]) -> None: ...
    def broken(self, operation_id: str, cause: BaseException) -> None: ...


class DurableEngine:
    """Implements ports/engine.Engine. Operations of one subject run in the order they were stored."""

    def __init__(
        self,
        store: Store,
        runner: Runs,
        *,
        open_queue: Callable[[Callable[[str], None]], WorkQueue],
        living: LiveControllers,
        afterwards: Callable[[str, str], None],
    ) -> None:
        """``open_queue`` is given what runs one operation; ``afterwards`` is given the host's name and the
        operation's subject after a run."""
        self._store = store
        self._runner = runner
        self._open_queue = open_queue
        self._living = living
        self._afterwards = afterwards
        self._wake = threading.Event()
        self._submitted: set[str] = set()
        """Since the last poll."""
        self._behind = False
        """Whether operations wait for others to end; the end of a run is then news."""
        self._ended = 0
        """Runs, as a number that grows."""
        self._thorough = False
        """Whether the next poll asks for all operations, because a run has ended."""
        self._stopping = threading.Event()
        self._running = 0
        self._changed = threading.Condition()
        self._queue: WorkQueue | None = None
        self._idle_beats = 0
        self._course = Course("operations", POLL_S)
        self._beats, self._next_beat = 0, 0.0
        self._thread = threading.Thread(target=self._attend, name="engine", daemon=True)
        self._thread.start()

    def submit(self, operation_id: str) -> None:
        """Run it soon. Submitting an operation twice runs it once."""
        log.debug("operation %s is submitted", operation_id)
        with self._changed:
            self._submitted.add(operation_id)
        self._wake.set()

    def recover(self) -> int:
        """Take up every stored operation that is not finished; returns how many. Called once at start."""
        with self._store.read() as tx:
            unfinished = tx.operations.list(unfinished=True)
        self._wake.set()
        return len(unfinished)

    def health(self) -> TimerHealth:
        """Of the polls of what is due."""
        return self._course.health()

    @property
    def database_rolled_back(self) -> bool:
        """What this controller wrote into the database is no longer there."""
        return self._living.rolled_back

    def stop(self) -> None:
        """Let running steps finish, start no further step, return. Unfinished operations stay stored."""
        self._stopping.set()
        self._wake.set()
        self._thread.join()
        if self._queue is not None:
            self._queue.begin_no_more()
        with self._changed:
            self._changed.wait_for(lambda: self._running == 0)
        if self._queue is not None:
            self._queue.close()
            with _outlived("leaving"):
                self._living.leave()

    def _attend(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            self._course.round(self._poll_now)
            self._wake.wait(POLL_S)

    def _poll_now(self) -> None:
        now = time.monotonic()
        beat = now >= self._next_beat
        self._poll(beat=beat, forget=self._beats % _FORGET_EVERY == 0)
        if beat:
            self._beats, self._next_beat = self._beats + 1, now + POLL_S

    def _poll(self, *, beat: bool, forget: bool) -> None:
        due = self._due(whole=beat)
        if self._queue is None:
            with self._living.beat():  # first: what nobody who lives has begun is taken over by the others
                pass
            if not due:  # a server that is only asked does without the queue
                return
            self._queue = self._open_queue(self._run)
        if beat:
            with self._living.beat() as living:
                taken = self._queue.take_over(living)
            if taken:
                log.warning("queued %d operations again whose run has gone", taken)
        if due:
            self._queue.offer(due, thorough=beat, alone=self._living.alone)
        if beat and forget:
            self._queue.forget_ended()
        if due:  # asked for by name, it may not have begun to run yet
            self._idle_beats = 0
        elif beat:
            self._idle_beats += 1
        if self._idle_beats >= RESTED_AFTER and not self._running:
            self._queue.forget_ended()  # one that rests often is seldom open when it is time for that
            queue, self._queue = self._queue, None
            queue.close()

    def _due(self, *, whole: bool) -> tuple[DueOperation, ...]:
        """What may run now; unless ``whole``, of what was submitted, or of all when the end of a run is news."""
        with self._changed:
            submitted, self._submitted = self._submitted, set()
            whole, self._thorough, ended = whole or self._thorough, False, self._ended
        with self._store.read() as tx:
            due = tx.operations.due(None if whole else submitted)
            behind = tx.operations.unfinished() > len(due) if whole else False
        with self._changed:
            self._behind = behind if whole else self._behind or not submitted <= {one.operation for one in due}
            if self._behind and self._ended != ended:  # what it waits for may have ended while that was not known
                self._look_at_all()
        return due

    def _look_at_all(self) -> None:
        self._thorough = True
        self._wake.set()

    def _run(self, operation_id: str) -> None:
        with self._changed:
            if self._stopping.is_set():
                return
            self._running += 1
        try:
            with self._store.read() as tx:
                due = {one.operation: one for one in tx.operations.due([operation_id])}.get(operation_id)
            if due is None:
                return
            with _outlived(f"operation {operation_id}", partial(self._runner.broken, operation_id)):
                self._runner.run(operation_id, self._stopping.is_set)
            self._has_ended()
            if not self._stopping.is_set():
                self._afterwards(due.host, due.subject)
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def _has_ended(self) -> None:
        with self._changed:
            self._ended += 1
            if self._behind:
                self._look_at_all()


def _outlived(what: str, broken: Callable[[Exception], None] | None = None) -> Contained:
    """``broken`` is told of what was our mistake; the database's errors pass, and the next poll tries again."""

    def told(error: Exception) -> None:
        if isinstance(error, WorldError):  # of the database: the steps' own have been dealt with
            log.warning("%s waits: %s: %s", what, error.message, error.details)
            return
        log.error("%s broke", what, exc_info=error)
        if broken is not None:
            with _outlived(f"writing down that {what} broke"):
                broken(error)

    return Contained(told)
