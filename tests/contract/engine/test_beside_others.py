# SPDX-License-Identifier: Apache-2.0
"""A controller that begins leaves alone what another may run on threads of its own, which no queue tells of."""

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
from tests.contract.engine.test_durable import Recording, add, wait_for

BEAT_S = POLL_S / 2
"""One that beats much more often than another takes it for dead."""


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


def test_what_had_begun_before_a_controller_did_is_run_by_it_when_the_older_ones_have_gone(
    store: Store, url: str
) -> None:
    bounds, ended, runs = Bounds(workers=8, per_host=8), threading.Semaphore(0), Recording(store)
    runs.gate.set()
    with living(controller(store, "elder")):
        add(store, "theirs", subject="a")
        with store.begin() as tx:
            tx.operations.take_up("theirs", 1.0)
        engine = DurableEngine(
            store,
            runs,
            bounds=bounds,
            open_queue=lambda run: WorkQueue(
                QueueDatabase(url.replace("e.sqlite", "queue.sqlite")), "one", bounds, run
            ),
            living=controller(store, "one"),
            afterwards=lambda _host, _subject: ended.release(),
        )
        engine.submit(add(store, "new", subject="b"))
        wait_for(ended, 1)
        assert runs.order == ["new"]
    wait_for(ended, 1)
    engine.stop()
    assert runs.order == ["new", "theirs"]


def test_one_that_begins_again_is_younger_than_those_that_lived_meanwhile(store: Store) -> None:
    first, second = controller(store, "a"), controller(store, "b")
    first.beat()
    second.beat()
    assert (set(first.elders), set(second.elders)) == (set(), {"a"})
    first.beat()
    again = controller(store, "a~2")
    again.beat()
    second.beat()
    assert (set(again.elders), set(second.elders)) == ({"a", "b"}, {"a"})


def test_one_that_has_gone_is_no_elder_any_more(store: Store) -> None:
    first, second = controller(store, "a"), controller(store, "b")
    first.beat()
    for _ in range(5):
        second.beat()
    assert second.elders == frozenset()
    assert second.alone


def test_others_know_of_one_that_begins_after_a_few_beats_and_who_is_alone_need_not_wait(store: Store) -> None:
    first, second = controller(store, "a"), controller(store, "b")
    first.beat()
    assert first.known
    for known in (False, False, False, True):
        second.beat()
        first.beat()
        assert second.known is known
