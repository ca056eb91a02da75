# SPDX-License-Identifier: Apache-2.0
"""The queue is closed when nobody needs it, and open for as long as somebody does."""

from __future__ import annotations

import queue
import threading

import pytest

from orchestrator.adapters.engine import durable as engine_module
from orchestrator.adapters.engine.durable import DurableEngine
from orchestrator.adapters.engine.work_queue import WorkQueue
from orchestrator.store.database import Store
from orchestrator.store.records import DueOperation
from tests.contract.engine.test_durable import LIMIT_S, Open, Recording, add, wait_for


def test_a_queue_that_nobody_needs_is_closed_and_opened_again_for_the_next_operation(
    store: Store, engine_of: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: queue.SimpleQueue[None] = queue.SimpleQueue()
    close = WorkQueue.close

    def told(self: WorkQueue) -> None:
        close(self)
        closed.put(None)

    monkeypatch.setattr(WorkQueue, "close", told)
    monkeypatch.setattr(engine_module, "RESTED_AFTER", 1)
    runs = Recording(store)
    runs.gate.set()
    engine, ended = engine_of(runs)
    for number in range(2):
        engine.submit(add(store, f"op{number}", subject="vm"))
        wait_for(ended, 1)
        closed.get(timeout=LIMIT_S)
    engine.stop()
    assert runs.order == ["op0", "op1"]


def test_a_queue_that_was_opened_again_stays_open_until_what_it_was_opened_for_has_begun(
    store: Store, engine_of: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: queue.SimpleQueue[str] = queue.SimpleQueue()
    polled, close, poll, run = threading.Event(), WorkQueue.close, DurableEngine._poll, DurableEngine._run
    runs = Recording(store)
    runs.gate.set()

    def told(self: WorkQueue) -> None:
        close(self)
        closed.put(f"{len(runs.order)} begun")

    def polls(self: DurableEngine, **which: bool) -> None:
        poll(self, **which)
        polled.set()

    def late(self: DurableEngine, one: DueOperation) -> None:
        if one.operation == "op1":
            polled.clear()  # the poll that offers it may have ended already, the next one has not
            assert polled.wait(LIMIT_S)
        run(self, one)

    monkeypatch.setattr(WorkQueue, "close", told)
    monkeypatch.setattr(DurableEngine, "_run", late)
    monkeypatch.setattr(DurableEngine, "_poll", polls)
    monkeypatch.setattr(engine_module, "RESTED_AFTER", 1)
    engine, ended = engine_of(runs)
    for number in range(2):
        engine.submit(add(store, f"op{number}", subject="vm"))
        wait_for(ended, 1)
        assert closed.get(timeout=LIMIT_S) == f"{number + 1} begun"
    engine.stop()
