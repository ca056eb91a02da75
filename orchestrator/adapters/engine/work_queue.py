# SPDX-License-Identifier: Apache-2.0
"""The durable queue: one run of an operation is one workflow of DBOS, queued in the partition of its host.

The journal remembers the steps, so a workflow has none of its own: run again after a crash it goes on from there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer, SetEnqueueOptions, SetWorkflowID
from dbos import error as library

from orchestrator.core.errors import Retryable
from orchestrator.ports.store.operations import DueOperation

VERSION: Final = "wf-1"
"""Of the workflow, not of the program: another one would strand what an older program has queued."""
_QUEUE: Final = "operations"
_WORKFLOW: Final = "run_operation"
_LIVE: Final = ["ENQUEUED", "PENDING", "DELAYED"]
_POLL_S: Final = 0.2
_KEPT: Final = 1000
"""Ended runs are kept only to be looked at."""
_BATCH: Final = 1000
"""So many are deleted at once."""
_NEVER_BEGAN: Final = 5
"""A run that this process has taken and that was seen not to run as many times in a row was lost on its way."""


class Database(Protocol):
    """Where the queue is kept (adapters/store/queue_database.py)."""

    @property
    def url(self) -> str: ...
    @property
    def engine(self) -> Any: ...
    def errors(self) -> AbstractContextManager[None]: ...
    def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """``workers``: runs at once in this process. ``per_host``: runs at once on a host, of all controllers."""

    workers: int
    per_host: int


class WorkQueue:
    """The library has one instance per process, and so has this."""

    def __init__(self, database: Database, name: str, bounds: Bounds, run: Callable[[str], None]) -> None:
        """Begin to take runs off the queue, first those that this controller had begun before it ended.

        ``name`` of this controller: the same after a restart, another one for each.

        :raises Retryable: ``store.queue``
        """
        logging.getLogger("dbos").addHandler(logging.NullHandler())  # else it writes to the console by itself
        self._database = database
        self._name = name
        self._run = run
        self._lock = threading.Lock()
        self._running: set[str] = set()
        self._not_running: dict[str, int] = {}
        self._offered: set[str] = set()
        """Operations that were queued since the last thorough look."""
        DBOS(
            config=DBOSConfig(
                name="vgpuctl",
                system_database_engine=database.engine,
                system_database_url=database.url,
                application_version=VERSION,
                executor_id=name,
                serializer=DBOSPortableJSONSerializer(),
                log_level="WARNING",
                use_listen_notify=False,
                notification_listener_polling_interval_sec=0.5,
            )
        )

        @DBOS.workflow(name=_WORKFLOW)
        def run_operation(operation_id: str) -> None:
            self._run_once(operation_id)

        self._workflow = run_operation
        try:
            with self._errors():
                DBOS.launch()
                DBOS.register_queue(
                    _QUEUE,
                    worker_concurrency=bounds.workers,
                    partition_concurrency=min(bounds.per_host, bounds.workers),
                    polling_interval_sec=_POLL_S,
                    on_conflict="always_update",
                )
        except BaseException:
            self.close()
            raise

    def offer(self, due: Iterable[DueOperation], *, thorough: bool) -> None:
        """Queue every one that is neither queued nor running. Unless ``thorough``, only those that this process has not
        queued yet, as their first run: what the queue's database says is not asked.

        :raises Retryable: ``store.queue``
        """
        if not thorough:
            self._queue_new([one for one in due if one.operation not in self._offered])
            return
        with self._errors():
            busy = {_operation_of(run.workflow_id) for run in _runs(status=_LIVE)} | self._running_now()
            due = tuple(due)
            self._offered = {one.operation for one in due}
            new = {f"{one.operation}.": one for one in due if one.operation not in busy}
            if not new:
                return
            ended = [run.workflow_id for run in _runs(workflow_id_prefix=list(new))]
            for prefix, one in new.items():
                number = 1 + max((int(run.removeprefix(prefix)) for run in ended if run.startswith(prefix)), default=-1)
                self._enqueue(one, f"{prefix}{number}")

    def _queue_new(self, new: Sequence[DueOperation]) -> None:
        """A run of that number that there is already is left as it is."""
        with self._errors():
            for one in new:
                self._enqueue(one, f"{one.operation}.0")
                self._offered.add(one.operation)

    def _enqueue(self, one: DueOperation, run: str) -> None:
        with SetWorkflowID(run), SetEnqueueOptions(queue_partition_key=one.host):
            DBOS.enqueue_workflow(_QUEUE, self._workflow, one.operation)

    def take_over(self, living: Collection[str]) -> int:
        """Queue again what a controller that does not live had begun, and what this one took off the queue and never
        began; how many that were.

        :raises Retryable: ``store.queue``
        """
        with self._errors():
            begun = _runs(status=["PENDING"])
            orphans = [run.workflow_id for run in begun if run.executor_id not in {self._name, *living}]
            orphans += self._never_began(run.workflow_id for run in begun if run.executor_id == self._name)
            if orphans:
                DBOS.resume_workflows(orphans, queue_name=_QUEUE)
            return len(orphans)

    def forget_ended(self) -> None:
        """Keep the newest of the runs that have ended.

        :raises Retryable: ``store.queue``
        """
        with self._errors():
            while ended := _runs(status=["SUCCESS", "ERROR", "CANCELLED"], sort_desc=True, offset=_KEPT, limit=_BATCH):
                DBOS.delete_workflows([run.workflow_id for run in ended])

    def _never_began(self, own: Iterable[str]) -> list[str]:
        """Of the runs that this process has taken: what went wrong while they were started is only in the log."""
        running = self._running_now()
        waiting = [run for run in own if _operation_of(run) not in running]
        self._not_running = {run: self._not_running.get(run, 0) + 1 for run in waiting}
        return [run for run, seen in self._not_running.items() if seen >= _NEVER_BEGAN]

    def _run_once(self, operation_id: str) -> None:
        """Not beside another run of it in this process, which was late and not lost."""
        with self._lock:
            if operation_id in self._running:
                return
            self._running.add(operation_id)
        try:
            self._run(operation_id)
        finally:
            with self._lock:
                self._running.discard(operation_id)

    def _running_now(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._running)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Those of the database, and those that the library has made of them."""
        try:
            with self._database.errors():
                yield
        except library.DBOSException as error:
            raise Retryable("store.queue", "the queue of operations cannot be used", details=str(error)) from error

    def close(self) -> None:
        """Take no more off the queue."""
        DBOS.destroy(destroy_registry=True)
        self._database.close()


def _runs(**which: Any) -> list[Any]:
    return list(DBOS.list_workflows(name=_WORKFLOW, load_input=False, load_output=False, **which))


def _operation_of(workflow_id: str) -> str:
    return workflow_id.rpartition(".")[0]
