# SPDX-License-Identifier: Apache-2.0
"""The durable queue: one run of an operation is one workflow of DBOS, queued in the partition of its host.

All controllers take runs off one queue; each has another for hosts that it reaches and others do not.

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
_POLL_S: Final = 0.1
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

    def __init__(self, database: Database, name: str, bounds: Bounds, run: Callable[[str], None]) -> None:
        """Begin to take runs off the queue. ``name``: of this process, which no other one has. ``run`` is given an
        operation.

        :raises Retryable: ``store.queue``
        """
        logging.getLogger("dbos").addHandler(logging.NullHandler())  # else it writes to the console by itself
        self._database = database
        self._name = name
        self._own = f"{_QUEUE}@{name}"
        self._has_own = False
        """Whether this process has made its own queue, which may be deleted by who takes it for dead."""
        self._bounds = bounds
        self._not_running: dict[str, int] = {}
        self._offered: set[str] = set()
        """Runs of operations that were due at the last thorough look or have become so since."""
        with self._errors(), database.alone():  # of those who find it lost at the same time, one makes it anew
            try:
                with self._errors():
                    self._launch(run)
            except Retryable as error:
                if error.code != QUEUE_LOST:
                    raise
                log.warning("the queue of operations is not whole (%s); it is made anew", error.details)
                database.drop()
                self._launch(run)

    def _launch(self, run: Callable[[str], None]) -> None:
        """Twice where the queue is new: of one that is there when it begins the library has a worker at once, of others
        up to a second later."""
        try:
            self._begin(run)
            if DBOS.retrieve_queue(_QUEUE) is None:
                self._register(_QUEUE)
                DBOS.destroy(destroy_registry=True)
                self._begin(run)
            self._register(_QUEUE)  # with the bounds of this process
            _runs(status=_LIVE, limit=1)  # what it is made of is there
        except BaseException:
            self.close()
            raise

    def _begin(self, run: Callable[[str], None]) -> None:
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
                notification_listener_polling_interval_sec=_POLL_S,  # nobody notifies: it delays the end
            )
        )

        @DBOS.workflow(name=_WORKFLOW)
        def run_operation(operation_id: str) -> None:
            run(operation_id)

        self._workflow = run_operation
        DBOS.listen_queues([_QUEUE, self._own])
        DBOS.launch()

    def _register(self, queue: str) -> None:
        DBOS.register_queue(
            queue,
            worker_concurrency=self._bounds.held,
            partition_concurrency=self._bounds.held_per_host,
            polling_interval_sec=_POLL_S,
            on_conflict="always_update",
        )

    def offer(
        self,
        due: Iterable[DueOperation],
        *,
        news: Collection[str] | None,
        apart: Collection[str],
        busy: Collection[str],
    ) -> None:
        """Have every one run that is neither queued nor ``busy``. ``news``: operations; of others that are due nothing
        is asked of the queue's database, and only those are queued that never ran and that this process has not been
        offered yet. None: all are. ``apart``: hosts that no other controller is to work on.

        :raises Retryable: ``store.queue``
        """
        with self._errors():
            due = tuple(run for run in due if run.operation not in busy)
            offered = set[str]() if news is None else self._offered
            first = {_first_run(run): run for run in due if news is not None and not run.attempt}
            new = {name: run for name, run in first.items() if name not in offered}
            new |= self._not_queued([run for run in due if news is None or (run.attempt and run.operation in news)])
            if not self._has_own and any(run.host in apart for run in new.values()):
                self._register(self._own)
                self._has_own = True
            for name, run in new.items():
                self._enqueue(self._own if run.host in apart else _QUEUE, name, run)
            self._offered = offered | {_first_run(run) for run in due}

    def _not_queued(self, due: Collection[DueOperation]) -> dict[str, DueOperation]:
        """By the ids of their next runs."""
        if not due:
            return {}
        live = {_operation_of(run.workflow_id) for run in _runs(status=_LIVE)}
        new = {f"{run.operation}.": run for run in due if run.operation not in live}
        ended = [run.workflow_id for run in _runs(workflow_id_prefix=list(new))] if new else []
        return {f"{prefix}{_next_number(prefix, ended)}": run for prefix, run in new.items()}

    def _enqueue(self, queue: str, name: str, run: DueOperation) -> None:
        """A run of that id that there is already is left as it is."""
        with SetWorkflowID(name), SetEnqueueOptions(queue_partition_key=run.line):
            DBOS.enqueue_workflow(queue, self._workflow, run.operation)

    def take_over(self, living: Collection[str] | None, running: Collection[str]) -> int:
        """Let be queued again what a controller that is not among the ``living`` had begun or was to begin (None:
        another one sees to that), and what this one took and is not ``running``; how many that were.

        :raises Retryable: ``store.queue``, ``store.queue_lost``
        """
        with self._errors():
            queues = {queue.name for queue in DBOS.list_queues()}
            if _QUEUE not in queues:  # nothing would be taken off it any more
                raise Retryable(QUEUE_LOST, "the queue of operations has lost its entry")
            if self._has_own and self._own not in queues:
                self._register(self._own)
            begun = _runs(status=["PENDING"])
            own = [run for run in begun if run.executor_id == self._name]
            orphans = self._never_began([run for run in own if _operation_of(run.workflow_id) not in running])
            if living is not None:
                orphans += [run for run in begun if run.executor_id not in {self._name, *living}]
                left = queues - {_QUEUE, *(f"{_QUEUE}@{name}" for name in living)}
                orphans += _runs(status=["ENQUEUED"], queue_name=list(left)) if left else []
            if orphans:  # whoever cannot reach the host leaves it to those who can
                DBOS.resume_workflows([run.workflow_id for run in orphans], queue_name=_QUEUE)
            if living is not None:
                for queue in left:
                    DBOS.delete_queue(queue)
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


def _first_run(run: DueOperation) -> str:
    return f"{run.operation}.0"


def _operation_of(workflow_id: str) -> str:
    return workflow_id.rpartition(".")[0]


def _next_number(prefix: str, ended: Iterable[str]) -> int:
    return 1 + max((int(run.removeprefix(prefix)) for run in ended if run.startswith(prefix)), default=-1)
