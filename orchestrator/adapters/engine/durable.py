# SPDX-License-Identifier: Apache-2.0
"""Runs of operations: bounded in all and per host, one at a time per VM or host it is about.

The operations themselves say what has to run; a poll of them finds what is due. So an operation that was stored is run
whatever happened after, and one that waits for another takes a row and no thread. What this process has stored is asked
for by name, and the end of a run makes a poll only while some operation waits for another.

While no other controller lives, what is due is run on threads of this process. Several share a durable queue.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from orchestrator.adapters.engine.live_controllers import LiveControllers
from orchestrator.adapters.engine.own_runs import OwnRuns
from orchestrator.adapters.engine.places import Bounds
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
        open_queue: Callable[[Callable[[str, str], None]], WorkQueue],
        living: LiveControllers,
        afterwards: Callable[[str, str], None],
    ) -> None:
        """``open_queue`` is given what runs one operation of a line; ``afterwards`` is given the host's name and the
        operation's subject after a run."""
        self._store = store
        self._runner = runner
        self._own = OwnRuns(bounds, self._run)
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
        self._left_alone: frozenset[str] | None = None
        """Operations that had begun before this controller did, and that are in no queue: whoever was there before may
        run them. None: that is not known yet."""
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
        self._own.begin_no_more()
        with self._changed:
            self._changed.wait_for(lambda: self._running == 0, max(end - time.monotonic(), 0.0))
            left = self._running
        self._own.close()
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
        if beat:
            self._beat()
        if not self._living.known:  # what this one has stored is due for the others, too
            self._left_alone = None
            return
        if not self._living.alone:
            self._own.give_up_waiting()
        due = self._due(whole=beat)
        if due:
            self._offer(self._of_reached_hosts(due), thorough=beat)
            self._idle_beats = 0  # asked for by name, it may not have begun to run yet
        elif beat:
            self._idle_beats += 1
        if self._queue is not None:
            self._tidy(self._queue, forget=beat and forget)

    def _beat(self) -> None:
        """What nobody who lives has begun is taken over by one of them. No transaction is open meanwhile: the queue may
        keep its askers waiting."""
        living = self._living.beat()
        if self._queue is None:
            return
        taken = self._queue.take_over(living if self._living.leads else None, self._own.running())
        if taken:
            log.warning("queued %d operations again whose run has gone", taken)

    def _let_go_of_queue(self) -> None:
        """By whoever opens it next. Nothing in it is the only copy of anything."""
        log.error("the queue of operations has lost its tables; it is made anew from the stored operations")
        queue, self._queue, self._left_alone = self._queue, None, None
        if queue is not None:
            queue.close()

    def _offer(self, due: tuple[DueOperation, ...], *, thorough: bool) -> None:
        if self._living.alone:
            queued = self._queue.live() if thorough and self._queue is not None else frozenset[str]()
            self._own.offer(one for one in due if one.operation not in queued)
            return
        if self._queue is None:  # a server that is alone, or only asked, does without
            self._queue = self._open_queue(self._run_queued)
        others = self._of_others(due, self._queue) if thorough else self._left_alone or frozenset()
        self._queue.offer(due, thorough=thorough, busy=self._own.known() | others)

    def _of_reached_hosts(self, due: tuple[DueOperation, ...]) -> tuple[DueOperation, ...]:
        """What any controller may do. Where only some reach the host, it is for one of those, on its own threads: the
        queue does not know who can."""
        if self._living.alone:
            return due
        with self._store.read() as tx:
            apart = tx.controllers.apart()
        if not apart:
            return due
        queued = self._queue.live() if self._queue is not None else frozenset[str]()
        mine = (one for one in due if apart.get(one.host) == self._living.name and one.operation not in queued)
        self._own.offer(mine)
        return tuple(one for one in due if one.host not in apart)

    def _is_for_another(self, host: str) -> bool:
        """It was queued before it was known who reaches the host."""
        if self._living.alone:
            return False
        with self._store.read() as tx:
            return tx.controllers.apart().get(host, self._living.name) != self._living.name

    def _of_others(self, due: tuple[DueOperation, ...], queue: WorkQueue) -> frozenset[str]:
        """Of what is due: what a controller may run on threads of its own that was alone before this one began. It is
        due for the oldest of those that live, whether it runs or not."""
        if self._left_alone is None:
            self._left_alone = frozenset(one.operation for one in due if one.attempt) - queue.live()
        still = self._left_alone.intersection(one.operation for one in due)
        self._left_alone = still if self._living.elders else frozenset()
        return self._left_alone

    def _tidy(self, queue: WorkQueue, *, forget: bool) -> None:
        """One that rests often is seldom open when it is time to forget."""
        rests = self._idle_beats >= RESTED_AFTER and not self._running
        if forget or rests:
            queue.forget_ended()
        if rests:
            self._queue = None
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

    def _run_queued(self, operation_id: str, _line: str) -> None:
        due = self._due_now(operation_id)
        if due is not None:
            self._own.run_queued(due)

    def _due_now(self, operation_id: str) -> DueOperation | None:
        with self._store.read() as tx:
            return {one.operation: one for one in tx.operations.due([operation_id])}.get(operation_id)

    def _run(self, operation_id: str) -> None:
        with self._changed:
            if self._stopping.is_set():
                return
            self._running += 1
        try:
            due = self._due_now(operation_id)
            if due is None or self._is_for_another(due.host):
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
