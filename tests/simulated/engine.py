# SPDX-License-Identifier: Apache-2.0
"""ports/engine as fibers of one process: as many per host as the real one, one at a time per subject."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from orchestrator.core.operation import FINISHED
from orchestrator.operations.runner import Runner
from orchestrator.store.database import Store
from tests.simulated.schedule import Process, Schedule

_PER_HOST = 4


class SimEngine:
    """Implements ports.engine.Engine. What it knows dies with the process; another one recovers it from the store."""

    def __init__(
        self, schedule: Schedule, process: Process, store: Store, runner: Runner, afterwards: Callable[[str, str], None]
    ) -> None:
        """``afterwards`` is called with host and subject when an operation has ended or was parked."""
        self._schedule = schedule
        self._process = process
        self._store = store
        self._runner = runner
        self._afterwards = afterwards
        self._waiting: list[tuple[str, str, str]] = []
        self._known: set[str] = set()
        self._subjects: set[str] = set()
        self._hosts: Counter[str] = Counter()
        self._stopping = False

    def submit(self, operation_id: str) -> None:
        """Run it soon. Submitting an operation twice runs it once."""
        with self._store.read() as tx:
            job = tx.operations.get(operation_id)
        if self._stopping:
            return
        if operation_id not in self._known:
            self._known.add(operation_id)
            self._waiting.append((operation_id, job.operation.subject, job.host))
        self._start_some()

    def recover(self) -> int:
        """Take up every stored operation that is not finished; returns how many."""
        with self._store.read() as tx:
            unfinished = tx.operations.list(unfinished=True)
        for operation in reversed(unfinished):
            self.submit(operation.id)
        return len(unfinished)

    def stop(self) -> None:
        """Start no further step."""
        self._stopping = True
        self._waiting.clear()

    def _start_some(self) -> None:
        for entry in list(self._waiting):
            operation_id, subject, host = entry
            room = subject not in self._subjects and self._hosts[host] < _PER_HOST
            if room and self._is_due(operation_id):
                self._waiting.remove(entry)
                self._subjects.add(subject)
                self._hosts[host] += 1
                self._schedule.spawn(self._process, operation_id[:8], partial(self._run, *entry))

    def _is_due(self, operation_id: str) -> bool:
        with self._store.read() as tx:
            return operation_id in {one.operation for one in tx.operations.due([operation_id])}

    def _run(self, operation_id: str, subject: str, host: str) -> None:
        self._runner.run(operation_id, lambda: self._stopping)
        with self._store.read() as tx:
            operation = tx.operations.get(operation_id).operation
        ended = operation.state if operation.state in FINISHED else "parked"
        self._schedule.note(f"{self._process.name} {operation.kind} {operation_id[:8]} {subject[:8]}: {ended}")
        self._known.discard(operation_id)
        self._subjects.discard(subject)
        self._hosts[host] -= 1
        if not self._stopping:
            self._start_some()
            self._afterwards(host, subject)
