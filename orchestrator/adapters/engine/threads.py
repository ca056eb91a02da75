# SPDX-License-Identifier: Apache-2.0
"""Operations on threads of this process: bounded in all and per host, one at a time per VM or host it is about."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Protocol

from orchestrator.ports.store import Store

log = logging.getLogger(__name__)


class Runs(Protocol):
    """What executes one operation (operations/runner.Runner)."""

    def run(self, operation_id: str, stopping: Callable[[], bool]) -> None: ...
    def broken(self, operation_id: str, cause: BaseException) -> None: ...


class ThreadEngine:
    """Implements ports/engine.Engine. Operations of one subject run in the order they were submitted."""

    def __init__(
        self,
        store: Store,
        runner: Runs,
        *,
        workers: int,
        per_host: int,
        afterwards: Callable[[str], None],
    ) -> None:
        """``afterwards`` is called with the host's name when an operation on it has ended or was parked."""
        self._store = store
        self._runner = runner
        self._per_host = per_host
        self._afterwards = afterwards
        self._pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="operation")
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._waiting: deque[tuple[str, str, str]] = deque()
        self._known: set[str] = set()
        self._subjects: set[str] = set()
        self._hosts: Counter[str] = Counter()

    def submit(self, operation_id: str) -> None:
        """Run it soon. Submitting an operation twice runs it once."""
        with self._store.read() as tx:
            job = tx.operations.get(operation_id)
        with self._lock:
            if operation_id in self._known or self._stopping.is_set():
                return
            self._known.add(operation_id)
            self._waiting.append((operation_id, job.operation.subject, job.host))
        self._start_some()

    def recover(self) -> int:
        """Take up every stored operation that is not finished; returns how many. Called once at start."""
        with self._store.read() as tx:
            unfinished = tx.operations.list(unfinished=True)
        for operation in reversed(unfinished):
            self.submit(operation.id)
        return len(unfinished)

    def busy(self) -> bool:
        """Whether an operation runs or waits."""
        with self._lock:
            return bool(self._known)

    def stop(self) -> None:
        """Let running steps finish, start no further step, return. Unfinished operations stay stored."""
        self._stopping.set()
        with self._lock:
            self._waiting.clear()
        self._pool.shutdown(wait=True)

    def _start_some(self) -> None:
        with self._lock:
            ready = [entry for entry in self._waiting if self._reserve(entry)]
            for entry in ready:
                self._waiting.remove(entry)
            futures = [(entry, self._pool.submit(self._runner.run, entry[0], self._stopping.is_set)) for entry in ready]
        # Outside the lock: the callback of a run that has already ended is called here and now.
        for entry, future in futures:
            future.add_done_callback(partial(self._ended, *entry))

    def _reserve(self, entry: tuple[str, str, str]) -> bool:
        _, subject, host = entry
        if self._stopping.is_set() or subject in self._subjects or self._hosts[host] >= self._per_host:
            return False
        self._subjects.add(subject)
        self._hosts[host] += 1
        return True

    def _ended(self, operation_id: str, subject: str, host: str, done: Future[None]) -> None:
        cause = done.exception()
        try:
            if cause is not None:
                log.error("operation %s broke", operation_id, exc_info=cause)
                self._runner.broken(operation_id, cause)
        finally:
            with self._lock:
                self._known.discard(operation_id)
                self._subjects.discard(subject)
                self._hosts[host] -= 1
        if not self._stopping.is_set():
            self._start_some()
            self._afterwards(host)
