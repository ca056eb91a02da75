# SPDX-License-Identifier: Apache-2.0
"""A database that cannot be asked, and a queue that is gone, end no controller; nor does one pass for another."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from orchestrator.adapters.engine.live_controllers import LiveControllers, process_name
from orchestrator.adapters.engine.work_queue import WorkQueue
from orchestrator.core.errors import Retryable
from orchestrator.store.database import Store
from tests.contract.engine.test_durable import Open, Recording, add, wait_for
from tests.fakes.control_plane import KEY
from tests.fakes.new_database import engine_beside
from tests.fakes.several import until
from tests.postgres.cluster import Cluster

REFUSED_AT_COMMIT = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'no disk' USING ERRCODE = '53100'; END $$;
CREATE CONSTRAINT TRIGGER refuses AFTER UPDATE ON controllers DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION refuse();
"""


def told(engine: Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for one in statements:
            connection.execute(text(one))


def test_a_beat_that_was_not_committed_is_no_restored_database(postgres: Cluster) -> None:
    url = postgres.database()
    store, asked = Store(url, key=KEY, new_site="s"), engine_beside(url)
    living = LiveControllers(store, "one", alone=False)
    for _ in range(3):
        living.beat()
    told(asked, REFUSED_AT_COMMIT)
    for _ in range(3):
        with pytest.raises(Retryable):
            living.beat()
    told(asked, "DROP TRIGGER refuses ON controllers")
    for _ in range(3):
        living.beat()
        assert not living.rolled_back
    store.close()
    asked.dispose()


def test_a_queue_that_does_not_answer_once_is_no_restored_database(
    store: Store, engine_of: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[None] = []
    take_over = WorkQueue.take_over

    def fails_once(self: WorkQueue, *asked: frozenset[str]) -> int:
        if not failed:
            failed.append(None)
            raise Retryable("store.queue", "the queue of operations cannot be used")
        return take_over(self, *asked)

    monkeypatch.setattr(WorkQueue, "take_over", fails_once)
    runs = Recording(store)
    runs.gate.set()
    engine, ended = engine_of(runs)
    engine.submit(add(store, "first", subject="a"))
    wait_for(ended, 1)
    until(lambda: failed, "a question that fails")
    engine.submit(add(store, "second", subject="b"))
    wait_for(ended, 1)
    assert not engine.database_rolled_back
    engine.stop()


@pytest.mark.parametrize(
    ("url", "harm"),
    [
        ("postgresql", "DROP SCHEMA dbos CASCADE"),
        ("postgresql", "DROP TABLE dbos.workflow_status CASCADE"),
        ("postgresql", "DROP TABLE dbos.dbos_migrations"),
        ("postgresql", "DROP TABLE dbos.queues"),
        ("postgresql", "DELETE FROM dbos.queues"),
        ("sqlite", "DROP TABLE workflow_status"),
        ("sqlite", "DROP TABLE dbos_migrations"),
        ("sqlite", "DELETE FROM queues"),
    ],
    indirect=["url"],
)
def test_a_queue_that_was_damaged_is_made_anew_and_what_was_in_it_is_run(
    store: Store, engine_of: Open, url: str, harm: str
) -> None:
    runs = Recording(store)
    runs.gate.set()
    engine, ended = engine_of(runs)
    engine.submit(add(store, "before", subject="a"))
    wait_for(ended, 1)
    asked = engine_beside(url.replace("e.sqlite", "queue.sqlite"))
    told(asked, harm)
    asked.dispose()
    engine.submit(add(store, "after", subject="b"))
    wait_for(ended, 1)
    engine.stop()
    assert runs.order == ["before", "after"]


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_queue_whose_file_is_none_of_a_database_is_made_anew(tmp_path: Path, engine_of: Open, store: Store) -> None:
    (tmp_path / "queue.sqlite").write_bytes(b"x" * 8192)
    runs = Recording(store)
    runs.gate.set()
    engine, ended = engine_of(runs)
    engine.submit(add(store, "op", subject="a"))
    wait_for(ended, 1)
    engine.stop()


def test_a_step_that_does_not_end_keeps_no_server_from_ending(store: Store, engine_of: Open) -> None:
    runs = Recording(store)
    engine, _ = engine_of(runs)
    engine.submit(add(store, "hangs", subject="a"))
    until(lambda: runs.running, "a run")
    assert engine.stop(patience_s=0.2) == 1
    with store.read() as tx:
        assert [one.operation for one in tx.operations.due()] == ["hangs"], "it is due for the next server"
    runs.gate.set()
    until(lambda: not runs.running, "its end")


def test_processes_with_the_name_of_one_controller_are_told_apart_and_it_is_said(postgres: Cluster) -> None:
    store = Store(postgres.database(), key=KEY, new_site="s")
    first, second = (LiveControllers(store, process_name("localhost-1"), alone=False) for _ in range(2))
    other = LiveControllers(store, process_name("otherhost-1"), alone=False)
    for _ in range(3):
        for one in (first, second, other):
            one.beat()
    assert first.beat() == {first.name, second.name, other.name}
    assert first.double is not None
    assert second.double is not None
    assert "localhost-1" in first.double
    assert other.double is None
    second.leave()
    first.beat()
    assert first.double is None
    store.close()


def test_the_remainder_of_a_killed_process_is_no_double(postgres: Cluster) -> None:
    store = Store(postgres.database(), key=KEY, new_site="s")
    LiveControllers(store, process_name("localhost-1"), alone=False).beat()
    again = LiveControllers(store, process_name("localhost-1"), alone=False)
    for _ in range(5):
        again.beat()
        assert again.double is None
    assert again.beat() == {again.name}
    store.close()
