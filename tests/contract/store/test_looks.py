# SPDX-License-Identifier: Apache-2.0
"""What rounds of looks read and write of all hosts, as every database must."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import select

from orchestrator.core.actions.gpu_cards import cards_of
from orchestrator.core.hosts.host import Host
from orchestrator.services.readings.known_gpus import KnownGpus
from orchestrator.store.database import Store
from orchestrator.store.records import LastObservation, UnchangedObservation
from orchestrator.store.tables import observations
from tests.contract.store.test_store import host, operation
from tests.fakes.fake_machine import FakeMachine, snapshot_of, t4

SNAPSHOT = snapshot_of(FakeMachine(machine_id="m", gpus=[t4()]))


def standing(store: Store) -> dict[str, LastObservation]:
    with store.read() as tx:
        return {one.host.name: one for page in tx.observations.last() for one in page}


def looked_at(store: Store, *names: str, turn: int = 0) -> None:
    with store.begin() as tx:
        for name in names:
            tx.hosts.put_snapshot(name, SNAPSHOT, turn)
            tx.observations.judge(name)


def ends(store: Store, name: str, on: str) -> None:
    with store.begin() as tx:
        begun = replace(operation(name), subject=name)
        tx.operations.add(begun, host=on, inputs={})
        tx.operations.update(replace(begun, state="done", finished_at=3.0))


def test_every_host_stands_once_however_many_there_are(store: Store) -> None:
    more = [host(f"many-{number}") for number in range(1001)]
    with store.begin() as tx:
        for one in more:
            tx.hosts.add(one)
    with store.read() as tx:
        pages = [[standing.host.name for standing in page] for page in tx.observations.last()]
    assert len(pages) > 2
    assert sorted(name for page in pages for name in page) == sorted(["h1", *(one.name for one in more)])


def test_what_has_not_changed_of_hosts_is_made_once_by_each_process(store: Store) -> None:
    looked_at(store, "h1")
    first = standing(store)["h1"]
    with store.begin() as tx:
        tx.observations.put_unchanged([UnchangedObservation(host="h1", at=7.0)])
    second = standing(store)["h1"]
    assert second.host is first.host
    assert (second.digest, second.last_seen_at) == (first.digest, 7.0)


CHANGES: dict[str, Callable[[Host], Host]] = {
    "address": lambda one: replace(one, address="elsewhere.test"),
    "state": lambda one: replace(one, state="unreachable", state_reason="silent"),
    "labels": lambda one: replace(one, labels=(("rack", "r1"),)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_what_has_changed_of_a_host_stands_at_the_next_reading(store: Store, change: Callable[[Host], Host]) -> None:
    standing(store)
    with store.begin() as tx:
        changed = change(tx.hosts.get("h1"))
        tx.hosts.update(changed)
    assert standing(store)["h1"].host == replace(changed, managed_gpus=(), mig_layouts=())


def test_a_host_that_is_removed_stands_no_more_and_one_of_its_name_stands_as_it_is(store: Store) -> None:
    standing(store)
    with store.begin() as tx:
        tx.hosts.remove("h1")
    assert standing(store) == {}
    with store.begin() as tx:
        tx.hosts.add(replace(host(), port=2222))
    assert standing(store)["h1"].host.port == 2222


def test_a_host_that_is_seen_again_as_it_was_leaves_the_large_row_of_its_look_alone(store: Store) -> None:
    looked_at(store, "h1")
    with store.begin() as tx:
        before = tx.connection.execute(select(observations)).all()
        tx.observations.put_unchanged([UnchangedObservation(host="h1", at=7.0)])
        assert tx.connection.execute(select(observations)).all() == before
        assert tx.hosts.get("h1").last_seen_at == 7.0


def test_hosts_on_which_operations_have_ended_since_they_were_looked_at_are_changed(store: Store) -> None:
    with store.begin() as tx:
        tx.hosts.add(host("h2"))
    looked_at(store, "h1", "h2")
    ends(store, "first", "h1")
    with store.read() as tx:
        turn = tx.operations.turn()
        assert tx.observations.changed_since(since=None, now=0.0) == {"h1"}
        assert tx.observations.changed_since(since=turn, now=0.0) == frozenset()
    looked_at(store, "h1", turn=turn)
    ends(store, "second", "h2")
    with store.read() as tx:
        assert tx.observations.changed_since(since=None, now=0.0) == {"h2"}
        assert tx.observations.changed_since(since=turn, now=0.0) == {"h2"}


def test_a_host_is_reached_as_long_as_one_controller_that_lives_reaches_it(store: Store) -> None:
    with store.begin() as tx:
        for name in ("a", "b"):
            tx.controllers.beat(name)
        assert tx.controllers.miss("a", "h1"), "b may reach it"
        assert tx.controllers.apart() == {"h1": "b"}
        assert tx.controllers.miss("a", "h1"), "again"
        assert not tx.controllers.miss("b", "h1"), "nobody does"
        assert tx.controllers.missing("h1") == ("a", "b")
        assert tx.controllers.apart() == {}
        tx.controllers.reach("a", "h1")
        assert tx.controllers.apart() == {"h1": "a"}
        assert (tx.controllers.missed("a"), tx.controllers.missed("b")) == (frozenset(), frozenset({"h1"}))
        tx.controllers.remove("b")
        assert tx.controllers.apart() == {}, "the one that is left reaches it"
        assert not tx.controllers.miss("a", "h1"), "one that has gone counts no more"
        tx.hosts.remove("h1")
        assert tx.controllers.missed("a") == frozenset()


def test_readings_know_a_host_s_gpus_while_its_driver_does_not_say_which_they_are(store: Store) -> None:
    known = KnownGpus()
    with store.begin() as tx:
        tx.hosts.put_snapshot("h1", SNAPSHOT, 0)
        tx.cards.learn("h1", cards_of(SNAPSHOT.gpus))
        before = known.of_all(tx)["h1"]
        nameless = tuple(replace(gpu, uuid="", serial=None) for gpu in SNAPSHOT.gpus)
        tx.hosts.put_snapshot("h1", replace(SNAPSHOT, gpus=nameless), 0)
        assert known.of_all(tx)["h1"] == known.of(tx, "h1") == before
    assert all(gpu.uuid for gpu in before)
