# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dbos import DBOS
from dbos._core import execute_dequeued_workflow
from dbos._error import DBOSQueryTimeoutError

from orchestrator.adapters.engine import durable as engine_module
from orchestrator.adapters.engine import work_queue
from orchestrator.adapters.engine.durable import DurableEngine, Runs
from orchestrator.adapters.engine.live_controllers import LiveControllers
from orchestrator.adapters.engine.places import AHEAD, Bounds
from orchestrator.adapters.engine.work_queue import WorkQueue
from orchestrator.core.operation import Operation, OperationState, StepRecord
from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.operations.journal import Journal
from orchestrator.operations.runner import Runner
from orchestrator.store.database import Store
from orchestrator.store.queue_database import QueueDatabase
from tests.fakes.control_plane import T4_HOST, control_plane, create_vm
from tests.fakes.several import until

LIMIT_S = 120.0
MADE: list[DurableEngine] = []
"""By the test that runs, which may end before it stops them: the library is one for the process."""


class Recording:
    """Runs that wait until they are let go, and then end their operation."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.lock = threading.Lock()
        self.running: set[str] = set()
        self.most = 0
        self.order: list[str] = []
        self.broke: list[str] = []
        self.gate = threading.Event()
        self.fail = False

    def run(self, operation_id: str, stopping: Callable[[], bool]) -> None:
        with self.lock:
            self.running.add(operation_id)
            self.order.append(operation_id)
            self.most = max(self.most, len(self.running))
        assert self.gate.wait(LIMIT_S)
        with self.lock:
            self.running.discard(operation_id)
        if self.fail:
            raise ZeroDivisionError
        self._end(operation_id, "done")

    def broken(self, operation_id: str, cause: BaseException) -> None:
        self.broke.append(f"{operation_id} {type(cause).__name__}")
        self._end(operation_id, "stuck")

    def _end(self, operation_id: str, state: OperationState) -> None:
        with self.store.begin() as tx:
            tx.operations.update(replace(tx.operations.get(operation_id).operation, state=state))


def durable(store: Store, url: str, runs: Runs, per_host: int, afterwards: Callable[[str, str], None]) -> DurableEngine:
    database = url.replace("e.sqlite", "queue.sqlite")
    bounds = Bounds(workers=8, per_host=per_host)
    engine = DurableEngine(
        store,
        runs,
        bounds=bounds,
        open_queue=lambda run: WorkQueue(QueueDatabase(database), "one", bounds, run),
        living=LiveControllers(store, "one", alone=url.startswith("sqlite")),
        afterwards=afterwards,
    )
    MADE.append(engine)
    return engine


def queued(operation_id: str, *, subject: str, at: float = 0.0) -> Operation:
    step = StepRecord(name="claim.1", title="c", state="pending")
    return Operation(
        id=operation_id,
        kind="create_vm",
        subject=subject,
        subject_name=subject,
        tenant=None,
        state="queued",
        steps=(step,),
        attempt=0,
        created_at=at,
    )


def add(store: Store, operation_id: str, *, subject: str, host: str = "h", at: float = 0.0) -> str:
    with store.begin() as tx:
        tx.operations.add(queued(operation_id, subject=subject, at=at), host=host, inputs={})
    return operation_id


Open = Callable[..., tuple[DurableEngine, threading.Semaphore]]


def wait_for(ended: threading.Semaphore, count: int) -> None:
    for _ in range(count):
        assert ended.acquire(timeout=LIMIT_S)


def test_operations_of_one_subject_run_one_after_the_other_in_order(store: Store, engine_of: Open) -> None:
    runs = Recording(store)
    engine, ended = engine_of(runs)
    for number in range(3):
        engine.submit(add(store, f"op{number}", subject="vm"))
    runs.gate.set()
    wait_for(ended, 3)
    engine.stop()
    assert (runs.order, runs.most) == (["op0", "op1", "op2"], 1)


@pytest.mark.fault("F22")
def test_a_host_has_a_limit_and_other_hosts_do_not_wait_for_it(store: Store, engine_of: Open) -> None:
    runs = Recording(store)
    engine, ended = engine_of(runs, per_host=2)
    for number in range(4):
        engine.submit(add(store, f"slow{number}", subject=f"a{number}", host="slow"))
    engine.submit(add(store, "quick", subject="b", host="other"))
    runs.gate.set()
    wait_for(ended, 5)
    engine.stop()
    assert runs.most <= 3
    assert sorted(runs.order) == ["quick", "slow0", "slow1", "slow2", "slow3"]


def test_what_waits_for_its_host_is_off_the_queue_before_it_may_begin(store: Store, engine_of: Open) -> None:
    runs = Recording(store)
    engine, ended = engine_of(runs, per_host=1)
    for number in range(4):
        engine.submit(add(store, f"op{number}", subject=f"vm{number}"))
    until(lambda: len(runs.running) == 1)
    until(lambda: len(DBOS.list_workflows(status="PENDING")) == AHEAD)
    runs.gate.set()
    wait_for(ended, 4)
    engine.stop()
    assert (runs.most, sorted(runs.order)) == (1, ["op0", "op1", "op2", "op3"])


def test_submitting_twice_runs_once(store: Store, engine_of: Open) -> None:
    runs = Recording(store)
    engine, ended = engine_of(runs)
    operation = add(store, "op", subject="vm")
    engine.submit(operation)
    engine.submit(operation)
    runs.gate.set()
    wait_for(ended, 1)
    engine.stop()
    assert runs.order == ["op"]


def test_what_was_unfinished_is_taken_up_oldest_first(store: Store, engine_of: Open) -> None:
    for number in range(3):
        add(store, f"op{number}", subject="vm", at=float(number))
    runs = Recording(store)
    engine, ended = engine_of(runs)
    assert engine.recover() == 3
    runs.gate.set()
    wait_for(ended, 3)
    engine.stop()
    assert runs.order == ["op0", "op1", "op2"]


def test_a_run_that_breaks_is_reported_and_the_next_one_runs(store: Store, engine_of: Open) -> None:
    runs = Recording(store)
    runs.fail = True
    runs.gate.set()
    engine, ended = engine_of(runs)
    for number in range(2):
        engine.submit(add(store, f"op{number}", subject="vm"))
    wait_for(ended, 2)
    engine.stop()
    assert runs.broke == ["op0 ZeroDivisionError", "op1 ZeroDivisionError"]


def test_however_much_was_run_the_rows_of_the_queue_do_not_grow(
    store: Store, engine_of: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: queue.SimpleQueue[int] = queue.SimpleQueue()
    close = WorkQueue.close

    def counted(self: WorkQueue) -> None:
        left.put(len(DBOS.list_workflows()))
        close(self)

    monkeypatch.setattr(WorkQueue, "close", counted)
    monkeypatch.setattr(work_queue, "_KEPT", 2)
    monkeypatch.setattr(work_queue, "_BATCH", 3)
    monkeypatch.setattr(engine_module, "RESTED_AFTER", 1)
    runs = Recording(store)
    runs.gate.set()
    engine, ended = engine_of(runs)
    for number in range(11):
        engine.submit(add(store, f"op{number}", subject=f"vm{number}"))
    wait_for(ended, 11)
    assert left.get(timeout=LIMIT_S) == 2
    engine.stop()


def once(error: Exception, then: Callable[..., Any]) -> Callable[..., Any]:
    """Fails at its first call."""
    failures = [error]

    def call(*args: Any, **named: Any) -> Any:
        if failures:
            raise failures.pop()
        return then(*args, **named)

    return call


def one_operation_is_run(store: Store, engine_of: Open, operation: str = "op") -> None:
    runs = Recording(store)
    runs.gate.set()
    engine, ended = engine_of(runs)
    engine.submit(add(store, operation, subject="vm"))
    wait_for(ended, 1)
    engine.stop()
    assert runs.order == [operation]


def test_a_run_that_was_taken_off_the_queue_and_never_began_is_queued_again(
    store: Store, engine_of: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dbos._queue.execute_dequeued_workflow", once(OSError("no thread"), execute_dequeued_workflow))
    one_operation_is_run(store, engine_of)


def test_a_run_that_could_not_be_begun_is_begun_again(
    store: Store, engine_of: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ThreadPoolExecutor, "submit", once(RuntimeError("no thread"), ThreadPoolExecutor.submit))
    one_operation_is_run(store, engine_of)


@pytest.mark.parametrize("error", [DBOSQueryTimeoutError(30.0), ZeroDivisionError()], ids=["timeout", "mistake"])
def test_the_engine_goes_on_when_one_look_at_the_queue_went_wrong(
    store: Store, engine_of: Open, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(DBOS, "list_workflows", once(error, DBOS.list_workflows))
    one_operation_is_run(store, engine_of)


def test_a_new_queue_is_launched_twice_and_one_that_is_there_once(
    store: Store, engine_of: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched: list[bool] = []
    launch = DBOS.launch

    def counted() -> None:
        launch()
        launched.append(DBOS.retrieve_queue("operations") is not None)

    monkeypatch.setattr(DBOS, "launch", counted)
    one_operation_is_run(store, engine_of)
    assert launched == [False, True]  # the second finds the queue, and has a worker for it from the beginning
    one_operation_is_run(store, engine_of, "next")
    assert launched == [False, True, True]


@pytest.mark.fault("F17")
def test_stop_parks_between_two_steps_and_the_next_process_finishes(tmp_path: Path, url: str) -> None:
    plane = control_plane(tmp_path, url=url)
    plane.add_host(T4_HOST)
    started = plane.services.vms.create(create_vm())
    assert started.operation is not None
    runner = Runner(plane.world, Journal(plane.store, plane.world.clock), DEFINITIONS)
    engine = durable(plane.store, url, runner, 2, lambda *_: None)
    reached, go_on = threading.Event(), threading.Event()

    def hold(_number: int, moment: str, name: str) -> None:
        if (moment, name) == ("before", "CreateVolume"):
            reached.set()
            assert go_on.wait(LIMIT_S)

    plane.hosts.strike = hold
    engine.submit(started.operation)
    assert reached.wait(LIMIT_S)
    stopping = threading.Thread(target=engine.stop)
    stopping.start()
    go_on.set()
    stopping.join(LIMIT_S)
    parked = plane.services.operations.get(started.operation)
    assert parked.state == "running"
    assert {step.state for step in parked.steps} == {"done", "pending"}

    finished = threading.Event()
    again = durable(plane.store, url, runner, 2, lambda *_: finished.set())
    again.recover()
    assert finished.wait(LIMIT_S)
    again.stop()
    assert plane.services.operations.get(started.operation).state == "done"
    plane.store.close()


@pytest.mark.fault("F14")
def test_a_delete_that_arrives_during_a_create_wins(tmp_path: Path, url: str) -> None:
    plane = control_plane(tmp_path, url=url)
    plane.add_host(T4_HOST)
    before = plane.machine(T4_HOST).state()
    reached, go_on, ended = threading.Event(), threading.Event(), threading.Semaphore(0)

    def hold(_number: int, moment: str, name: str) -> None:
        if (moment, name) == ("before", "CreateVolume"):
            reached.set()
            assert go_on.wait(LIMIT_S)

    plane.hosts.strike = hold
    runner = Runner(plane.world, plane.journal, DEFINITIONS)
    engine = durable(plane.store, url, runner, 2, lambda *_: ended.release())
    created = plane.services.vms.create(create_vm()).operation
    engine.submit(str(created))
    assert reached.wait(LIMIT_S)
    deleted = plane.services.vms.delete("default", "train").operation
    engine.submit(str(deleted))
    go_on.set()
    wait_for(ended, 2)
    engine.stop()
    assert plane.services.operations.get(str(created)).state == "undone"
    assert plane.services.operations.get(str(deleted)).state == "done"
    assert plane.machine(T4_HOST).state() == before
    plane.store.close()


def test_a_broken_run_makes_the_operation_stuck_with_what_may_remain(tmp_path: Path, url: str) -> None:
    plane = control_plane(tmp_path, url=url)
    plane.add_host(T4_HOST)
    started = plane.services.vms.create(create_vm())
    assert started.operation is not None
    runner = Runner(plane.world, plane.journal, DEFINITIONS)
    plane.hosts.strike = lambda _n, moment, name: KeyError("x") if (moment, name) == ("after", "MakeVgpu") else None
    ended = threading.Event()
    engine = durable(plane.store, url, runner, 1, lambda *_: ended.set())
    engine.submit(started.operation)
    assert ended.wait(LIMIT_S)
    engine.stop()
    operation = plane.services.operations.get(started.operation)
    assert operation.state == "stuck"
    assert operation.error is not None
    assert operation.error["code"] == "bug"
    assert any("vGPU" in text for text in operation.remainder)
    plane.store.close()
