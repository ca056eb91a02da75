# SPDX-License-Identifier: Apache-2.0
"""Who moves an operation on waits for nobody who moves another one, and only the newest attempt moves its own."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from orchestrator.operations.journal import Journal, Move, Suspended
from orchestrator.store.database import Store
from orchestrator.store.records import Job
from tests.contract.engine.test_durable import add
from tests.fakes.fake_world import FakeClock

LIMIT_S = 60.0
RACES = 8


@pytest.fixture
def journal(store: Store) -> Journal:
    return Journal(store, FakeClock())


def taken_up(journal: Journal, operation: str) -> Job:
    job = journal.take_up(operation)
    assert job is not None
    return job


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_an_operation_moves_on_while_others_claim_and_move(store: Store, journal: Journal) -> None:
    one, two = (taken_up(journal, add(store, name, subject=name)).operation for name in ("one", "two"))
    with store.claim() as tx:
        assert tx.operations.advance(one, {0: one.steps[0]}, whole=False) is False
        journal.note(two, 0, "half of it")
        journal.advance(two, [Move(0, "running", "more of it")])
    with store.read() as tx:
        assert tx.operations.get("two").operation.steps[0].message == "more of it"


def test_of_attempts_that_begin_at_once_only_the_newest_moves_on(store: Store, journal: Journal) -> None:
    with ThreadPoolExecutor(2) as pool:
        for number in range(RACES):
            name, together = add(store, f"op{number}", subject=f"vm{number}"), threading.Barrier(2)

            def begin(operation: str, together: threading.Barrier) -> Job:
                together.wait(LIMIT_S)
                return taken_up(journal, operation)

            jobs = [pool.submit(begin, name, together) for _ in range(2)]
            older, newer = sorted((one.result(LIMIT_S) for one in jobs), key=lambda job: job.operation.attempt)
            assert (older.operation.attempt, newer.operation.attempt) == (1, 2)
            with pytest.raises(Suspended):
                journal.advance(older.operation, [Move(0, "running")])
            journal.advance(newer.operation, [Move(0, "running")])
