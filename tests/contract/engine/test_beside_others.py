# SPDX-License-Identifier: Apache-2.0
"""What another controller that lives has begun is its own, and when it has gone is anybody's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.adapters.engine.durable import POLL_S, DurableEngine
from orchestrator.adapters.engine.live_controllers import LiveControllers
from orchestrator.adapters.engine.places import Bounds
from orchestrator.adapters.engine.work_queue import WorkQueue
from orchestrator.store.database import Store
from orchestrator.store.queue_database import QueueDatabase
from tests.contract.engine.test_durable import LIMIT_S, MADE, Recording, add, wait_for

BEAT_S = POLL_S / 2
"""One that beats much more often than another takes it for dead."""
BOUNDS = Bounds(workers=8, per_host=8)


def controller(store: Store, name: str) -> LiveControllers:
    return LiveControllers(store, name, alone=False)


@contextmanager
def living(one: LiveControllers) -> Iterator[None]:
    """It beats until the end of the block, and leaves."""
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(BEAT_S):
            one.beat()

    one.beat()
    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        one.leave()


def begun_by(name: str, store: Store, database: str, operation: str, *, apart: bool = False) -> None:
    """Its run is left as if the controller were in the middle of it; ``apart``: no other reaches the host."""
    begun, go_on = threading.Event(), threading.Event()

    def run(operation_id: str) -> None:
        with store.begin() as tx:
            tx.operations.take_up(operation_id, 1.0)
        begun.set()
        go_on.wait(LIMIT_S)

    queue = WorkQueue(QueueDatabase(database), name, BOUNDS, run)
    with store.read() as tx:
        due = tx.operations.due([operation])
    queue.offer(due, news=None, apart={"h"} if apart else (), busy=())
    assert begun.wait(LIMIT_S)
    queue.close()
    go_on.set()


def test_what_a_controller_had_begun_is_run_by_another_when_it_has_gone_and_not_before(store: Store, url: str) -> None:
    ended, runs, database = threading.Semaphore(0), Recording(store), url.replace("e.sqlite", "queue.sqlite")
    runs.gate.set()
    with living(controller(store, "elder")):
        begun_by("elder", store, database, add(store, "theirs", subject="a"))
        begun_by("elder", store, database, add(store, "apart", subject="c"), apart=True)
        engine = DurableEngine(
            store,
            runs,
            bounds=BOUNDS,
            open_queue=lambda run: WorkQueue(QueueDatabase(database), "one", BOUNDS, run),
            living=controller(store, "one"),
            afterwards=lambda _host, _subject: ended.release(),
        )
        MADE.append(engine)
        engine.submit(add(store, "new", subject="b"))
        wait_for(ended, 1)
        threading.Event().wait(2 * POLL_S)
        assert runs.order == ["new"]
    wait_for(ended, 2)
    engine.stop()
    assert sorted(runs.order[1:]) == ["apart", "theirs"]


def test_one_that_has_gone_is_not_among_the_living_after_a_few_beats(store: Store) -> None:
    first, second = controller(store, "a"), controller(store, "b")
    first.beat()
    assert [second.beat() for _ in range(4)] == [{"a", "b"}] * 3 + [{"b"}]
    assert second.leads
