# SPDX-License-Identifier: Apache-2.0
"""The durable queue of several controllers: one run of an operation is one workflow of DBOS, queued in the partition of
its host.

The journal remembers the steps, so a workflow has none of its own: run again after a crash it goes on from there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Protocol

from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer, SetEnqueueOptions, SetWorkflowID
from dbos import error as library

from orchestrator.adapters.engine.places import Bounds
from orchestrator.core.errors import QUEUE_LOST, Retryable
from orchestrator.store.records import DueOperation

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


log = logging.getLogger(__name__)


class Database(Protocol):
    """Where the queue is kept (store/queue_database.py)."""

    @property
    def url(self) -> str: ...
    @property
    def engine(self) -> Any: ...
    def errors(self) -> AbstractContextManager[None]: ...
    def alone(self) -> AbstractContextManager[None]: ...
    def drop(self) -> None: ...
    def close(self) -> None: ...


class WorkQueue:
    """The library has one instance per process, and so has this."""

    def __init__(self, database: Database, name: str, bounds: Bounds, run: Callable[[str, str], None]) -> None:
        """Begin to take runs off the queue, first those that this controller had begun before it ended.

        ``name`` of this controller: the same after a restart, another one for each. ``run`` is given an operation and
        its host.

        :raises Retryable: ``store.queue``
        """
        logging.getLogger("dbos").addHandler(logging.NullHandler())  # else it writes to the console by itself
        self._database = database
        self._name = name
        self._not_running: dict[str, int] = {}
        self._offered: set[str] = set()
        """Runs of operations that were due at the last thorough look or have become so since."""
        with self._errors(), database.alone():  # of those who find it lost at the same time, one makes it anew
            try:
                with self._errors():
                    self._launch(bounds, run)
            except Retryable as error:
                if error.code != QUEUE_LOST:
                    raise
                log.warning("the queue of operations is not whole (%s); it is made anew", error.details)
                database.drop()
                self._launch(bounds, run)

    def _launch(self, bounds: Bounds, run: Callable[[str, str], None]) -> None:
        DBOS(
            config=DBOSConfig(
                name="vgpuctl",
                system_database_engine=self._database.engine,
                system_database_url=self._database.url,
                application_version=VERSION,
                executor_id=self._name,
                serializer=DBOSPortableJSONSerializer(),
                log_level="WARNING",
                use_listen_notify=False,
                notification_listener_polling_interval_sec=0.5,
            )
        )

        @DBOS.workflow(name=_WORKFLOW)
        def run_operation(operation_id: str, line: str = "") -> None:  # without a line: queued by an older version
            run(operation_id, line)

        self._workflow = run_operation
        try:
            DBOS.launch()
            DBOS.register_queue(
                _QUEUE,
                worker_concurrency=bounds.most,
                partition_concurrency=min(bounds.per_host, bounds.workers),
                polling_interval_sec=_POLL_S,
                on_conflict="always_update",
            )
            _runs(status=_LIVE, limit=1)  # what it is made of is there
        except BaseException:
            self.close()
            raise

    def offer(self, due: Iterable[DueOperation], *, thorough: bool, busy: Collection[str]) -> None:
        """Have every one run that is neither queued nor ``busy``. Unless ``thorough``, only those of whom this is the
        first run and that this process has not been offered yet, and what the queue's database says is not asked.

        :raises Retryable: ``store.queue``
        """
        with self._errors():
            due = tuple(one for one in due if one.operation not in busy)
            new = self._not_queued(due) if thorough else {_run_of(one): one for one in due if not one.attempt}
            for run, one in new.items():
                if thorough or run not in self._offered:
                    self._enqueue(run, one)
            self._offered = {_run_of(one) for one in due} | (set() if thorough else self._offered)

    def live(self) -> frozenset[str]:
        """Operations that are queued, or run off the queue.

        :raises Retryable: ``store.queue``
        """
        with self._errors():
            return frozenset(_operation_of(run.workflow_id) for run in _runs(status=_LIVE))

    def _not_queued(self, due: Iterable[DueOperation]) -> dict[str, DueOperation]:
        """By the ids of their next runs."""
        live = self.live()
        new = {f"{one.operation}.": one for one in due if one.operation not in live}
        ended = [run.workflow_id for run in _runs(workflow_id_prefix=list(new))] if new else []
        return {f"{prefix}{_next_number(prefix, ended)}": one for prefix, one in new.items()}

    def _enqueue(self, run: str, one: DueOperation) -> None:
        """A run of that id that there is already is left as it is."""
        with SetWorkflowID(run), SetEnqueueOptions(queue_partition_key=one.line):
            DBOS.enqueue_workflow(_QUEUE, self._workflow, one.operation, one.line)

    def take_over(self, living: Collection[str] | None, running: Collection[str]) -> int:
        """Let be queued again what a controller that is not among the ``living`` had begun (None: another one sees to
        that), and what this one took and is not ``running``; how many that were.

        :raises Retryable: ``store.queue``, ``store.queue_lost``
        """
        with self._errors():
            if DBOS.retrieve_queue(_QUEUE) is None:  # nothing would be taken off it any more
                raise Retryable(QUEUE_LOST, "the queue of operations has lost its entry")
            begun = _runs(status=["PENDING"])
            orphans = []
            if living is not None:
                orphans += [run for run in begun if run.executor_id not in {self._name, *living}]
            own = [run for run in begun if run.executor_id == self._name]
            orphans += self._never_began([run for run in own if _operation_of(run.workflow_id) not in running])
            queued = [run.workflow_id for run in orphans if run.queue_partition_key is not None]
            if queued:
                DBOS.resume_workflows(queued, queue_name=_QUEUE)
            others = [run.workflow_id for run in orphans if run.queue_partition_key is None]
            if others:  # begun by an older version without the queue, which would have no place for them
                DBOS.cancel_workflows(others)
            return len(orphans)

    def forget_ended(self) -> None:
        """Keep the newest of the runs that have ended.

        :raises Retryable: ``store.queue``
        """
        with self._errors():
            while ended := _runs(status=["SUCCESS", "ERROR", "CANCELLED"], sort_desc=True, offset=_KEPT, limit=_BATCH):
                DBOS.delete_workflows([run.workflow_id for run in ended])

    def _never_began(self, taken: Sequence[Any]) -> list[Any]:
        """Of the runs that this process has taken: what went wrong while they were started is only in the log."""
        waiting = {run.workflow_id: run for run in taken}
        self._not_running = {run: self._not_running.get(run, 0) + 1 for run in waiting}
        return [run for name, run in waiting.items() if self._not_running[name] >= _NEVER_BEGAN]

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


def _run_of(one: DueOperation) -> str:
    """Its next one, when each run so far was an attempt. If not, it is there already and does nothing, and the next
    thorough look finds another number."""
    return f"{one.operation}.{one.attempt}"


def _operation_of(workflow_id: str) -> str:
    return workflow_id.rpartition(".")[0]


def _next_number(prefix: str, ended: Iterable[str]) -> int:
    return 1 + max((int(run.removeprefix(prefix)) for run in ended if run.startswith(prefix)), default=-1)
