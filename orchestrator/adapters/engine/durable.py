# SPDX-License-Identifier: Apache-2.0
"""Runs of operations: bounded in all and per host, one at a time per VM or host it is about.

The operations themselves say what has to run; a poll of them finds what is due and has it queued. So an operation that
was stored is run whatever happened after, and one that waits for another takes a row and no thread. What this process
has stored, and what may have waited for a run that has ended, is asked for by name.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from orchestrator.adapters.engine.live_controllers import LiveControllers
from orchestrator.adapters.engine.places import Bounds, RunPlaces
from orchestrator.adapters.engine.timer import Course
from orchestrator.core.contained import Contained
from orchestrator.core.errors import QUEUE_LOST, Retryable, WorldError
from orchestrator.ports.timers import TimerHealth
from orchestrator.store.database import Store
from orchestrator.store.records import DueOperation

if TYPE_CHECKING:
    from orchestrator.adapters.engine.work_queue import WorkQueue

POLL_S = 1.5
"""Between two polls when nobody asks for one; a controller that has gone is known after four."""
_FORGET_EVERY = 300
RESTED_AFTER = 20
"""Beats without an operation that is due, after which the queue is closed: its library asks its database several times
a second. The next operation opens it again."""
STOP_PATIENCE_S = 10.0
"""A step that asks a host which hangs ends by the host's limit, minutes later: the next server does it again."""
_AGAIN_S = 0.2
_ENDED_S = 0.02
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
        bounds: Bounds,
        open_queue: Callable[[Callable[[str], None]], WorkQueue],
        living: LiveControllers,
        afterwards: Callable[[str, str], None],
    ) -> None:
        """``open_queue`` is given what runs one operation, by its id; ``afterwards`` is given the host's name and the
        operation's subject after a run."""
        self._store = store
        self._runner = runner
        self._places = RunPlaces(bounds)
        self._open_queue = open_queue
        self._living = living
        self._live = frozenset((living.name,))
        """Controllers, as of the last beat."""
        self._apart: Mapping[str, str] = {}
        """As of the last beat: the controllers that work on hosts which others do not reach, by host."""
        self._afterwards = afterwards
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._news: set[str] = set()
        """Operations that were submitted since the last poll, or run while others waited."""
        self._behind = False
        """Whether operations wait for others to end, as far as is known."""
        self._stopping = threading.Event()
        self._queue: WorkQueue | None = None
        self._idle_beats = 0
        self._course = Course("operations", POLL_S)
        self._beats, self._next_beat = 0, 0.0
        self._thread = threading.Thread(target=self._attend, name="engine", daemon=True)
        self._thread.start()

    def submit(self, operation_id: str) -> None:
        """Run it soon. Submitting an operation twice runs it once."""
        log.debug("operation %s is submitted", operation_id)
        with self._lock:
            self._news.add(operation_id)
        self._wake.set()

    def recover(self) -> int:
        """Take up every stored operation that is not finished; returns how many. Called once at start."""
        with self._store.read() as tx:
            unfinished = tx.operations.list(unfinished=True)
        self._wake.set()
        return len(unfinished)

    def health(self) -> TimerHealth:
        """Of the polls of what is due; what is wrong among the controllers counts as its error."""
        health = self._course.health()
        return replace(health, error=health.error or self._living.double)

    @property
    def database_rolled_back(self) -> bool:
        """What this controller wrote into the database is no longer there."""
        return self._living.rolled_back

    def stop(self, patience_s: float = STOP_PATIENCE_S) -> int:
        """Let running steps finish, start no further step, return after so long at most. How many steps have not
        finished: only the end of the process ends them. Unfinished operations stay stored."""
        end = time.monotonic() + patience_s
        self._stopping.set()
        self._wake.set()
        self._thread.join(patience_s)
        while (left := len(self._places.running())) and time.monotonic() < end:
            time.sleep(_ENDED_S)
        if self._queue is not None and not self._thread.is_alive():
            self._queue.close()
        with _outlived("leaving"):
            self._living.leave()
        return left

    def _attend(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            self._course.round(self._poll_now)
            self._wake.wait(POLL_S)

    def _poll_now(self) -> None:
        now = time.monotonic()
        beat = now >= self._next_beat
        try:
            self._poll(beat=beat, forget=self._beats % _FORGET_EVERY == 0)
        except Retryable as error:
            if error.code == QUEUE_LOST:
                self._let_go_of_queue()
            raise
        if beat:
            self._beats, self._next_beat = self._beats + 1, now + POLL_S

    def _poll(self, *, beat: bool, forget: bool) -> None:
        """No transaction is open while the queue is asked, which may keep its askers waiting."""
        if beat:
            self._live = self._living.beat()
            if self._queue is not None:
                self._take_over(self._queue)
        self._offer_due(whole=beat)
        if self._queue is not None:
            self._tidy(self._queue, forget=beat and forget)

    def _take_over(self, queue: WorkQueue) -> None:
        """What nobody who lives runs is queued again, by one of them."""
        taken = queue.take_over(self._live if self._living.leads else None, self._places.running())
        if taken:
            log.warning("queued %d operations again whose run has gone", taken)

    def _let_go_of_queue(self) -> None:
        """By whoever opens it next. Nothing in it is the only copy of anything."""
        log.error("the queue of operations has lost its tables; it is made anew from the stored operations")
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.close()

    def _offer_due(self, *, whole: bool) -> None:
        """Have queued what may run now; unless ``whole``, of what is news."""
        with self._lock:
            news, self._news = self._news, set()
        with self._store.read() as tx:
            due = tx.operations.due(None if whole else news)
            if whole:
                self._apart = tx.controllers.apart()
                self._behind = tx.operations.unfinished() > len(due)
            else:
                self._behind = self._behind or not news <= {run.operation for run in due}
        mine = [run for run in due if self._is_here(run, self._apart)]
        if mine:
            queue = self._queue or self._opened()
            queue.offer(mine, news=None if whole else news, apart=self._apart, busy=self._places.running())
            self._idle_beats = 0  # asked for by name, it may not have begun to run yet
        elif whole:
            self._idle_beats += 1

    def _opened(self) -> WorkQueue:
        self._queue = self._open_queue(self._run_queued)
        self._take_over(self._queue)
        return self._queue

    def _tidy(self, queue: WorkQueue, *, forget: bool) -> None:
        """One that rests often is seldom open when it is time to forget."""
        rests = self._idle_beats >= RESTED_AFTER and not self._places.running()
        if forget or rests:
            queue.forget_ended()
        if rests:
            self._queue = None
            queue.close()

    def _run_queued(self, operation_id: str) -> None:
        """On a thread of the queue's."""
        if self._stopping.is_set():
            return
        run = self._due_here(operation_id)
        if run is None or not self._places.begin(operation_id):
            return
        try:
            if self._has_worker(run):
                self._run(run)
        finally:
            self._places.leave(operation_id)
        if self._behind:
            self.submit(operation_id)  # another one of its subject may have waited for it

    def _due_here(self, operation_id: str) -> DueOperation | None:
        """None also for one that was queued before it was known which controllers reach its host."""
        with self._store.read() as tx:
            due = tx.operations.due([operation_id])
            apart = tx.controllers.apart()
        return next((run for run in due if run.operation == operation_id and self._is_here(run, apart)), None)

    def _is_here(self, run: DueOperation, apart: Mapping[str, str]) -> bool:
        return apart.get(run.host, self._living.name) == self._living.name

    def _has_worker(self, run: DueOperation) -> bool:
        """Waits for one; False: the process ends, and the operation is due still."""
        while not self._stopping.is_set():
            if self._places.take(run, _AGAIN_S):
                return True
        return False

    def _run(self, run: DueOperation) -> None:
        with _outlived(f"operation {run.operation}", partial(self._runner.broken, run.operation)):
            self._runner.run(run.operation, self._stopping.is_set)
        if not self._stopping.is_set():
            self._afterwards(run.host, run.subject)


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
