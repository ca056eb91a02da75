# SPDX-License-Identifier: Apache-2.0
"""Which hosts have changed, as every database must tell it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pytest
from sqlalchemy import select

from orchestrator.core.attachments.host_facts import DISK_STEP, facts_of
from orchestrator.core.errors import Conflict
from orchestrator.core.hosts.snapshot import FileSnapshot, HostSnapshot
from orchestrator.core.vms.claim import HostCapacity
from orchestrator.store.database import Store
from orchestrator.store.records import ClaimLost
from orchestrator.store.tables import host_claims, host_usage
from orchestrator.store.transaction import Transaction
from tests.contract.store.test_store import AMPLE, GPU, IMAGE, KEY, claim, host, put, vm
from tests.fakes.cleaned import CLEANED
from tests.fakes.fake_machine import FakeMachine, snapshot_of, t4


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    made = Store(url, key=KEY, new_site="site-1")
    with made.begin() as tx:
        tx.images.add(IMAGE)
        for name in ("h1", "h2"):
            tx.hosts.add(host(name))
            tx.hosts.put_snapshot(name, SNAPSHOT, 1)
    yield made
    made.close()


SNAPSHOT = snapshot_of(FakeMachine(machine_id="m", gpus=[t4()]))


class Reader:
    """Somebody who keeps up with the database."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.position = 0
        self.stamps: dict[str, int] = {}

    def news(self) -> set[str]:
        with self.store.read() as tx:
            changes = tx.fleet.changes(self.position)
        found = {name for name, stamp in changes.stamps.items() if self.stamps.get(name) != stamp}
        self.position = changes.position
        self.stamps.update(changes.stamps)
        return found


def has_one(tx: Transaction) -> None:
    tx.vms.add(vm("a"))
    tx.claims.take(claim(vm("a"), 0), AMPLE)


CHANGES: dict[str, Callable[[Transaction], object]] = {
    "cordon": lambda tx: tx.hosts.update(replace(tx.hosts.get("h1"), cordoned=True)),
    "state": lambda tx: tx.hosts.update(replace(tx.hosts.get("h1"), state="unreachable")),
    "managed GPUs": lambda tx: tx.hosts.set_gpus("h1", (GPU,)),
    "removed": lambda tx: tx.hosts.remove("h1"),
    "another snapshot": lambda tx: tx.hosts.put_snapshot("h1", replace(SNAPSHOT, vcpus=3), 2),
    "less disk": lambda tx: tx.hosts.put_snapshot("h1", free(SNAPSHOT, -DISK_STEP), 2),
    "a VM that waits": lambda tx: tx.vms.add(vm("a")),
    "a claim": has_one,
}
NO_CHANGES: dict[str, Callable[[Transaction], object]] = {
    "the same seen later": lambda tx: tx.hosts.put_snapshot("h1", SNAPSHOT, 2),
    "a little less disk": lambda tx: tx.hosts.put_snapshot("h1", free(SNAPSHOT, -1), 2),
    "another base image": lambda tx: tx.hosts.put_snapshot("h1", with_image(SNAPSHOT), 2),
    "observed": lambda tx: tx.hosts.update(replace(tx.hosts.get("h1"), last_seen_at=9.0)),
}


def free(snapshot: HostSnapshot, more: int) -> HostSnapshot:
    return replace(snapshot, storage_free_bytes=snapshot.storage_free_bytes + more)


def with_image(snapshot: HostSnapshot) -> HostSnapshot:
    return replace(snapshot, images=(FileSnapshot(name="i", size_bytes=1, owner=None),))


@pytest.mark.parametrize("what", CHANGES)
def test_every_change_that_placement_sees_is_heard_of_once(store: Store, what: str) -> None:
    reader = Reader(store)
    assert reader.news() == {"h1", "h2"}
    with store.begin() as tx:
        CHANGES[what](tx)
    assert reader.news() == {"h1"}
    assert reader.news() == set()


@pytest.mark.parametrize("what", NO_CHANGES)
def test_what_placement_cannot_see_is_no_change(store: Store, what: str) -> None:
    reader = Reader(store)
    reader.news()
    with store.begin() as tx:
        NO_CHANGES[what](tx)
    assert reader.news() == set()


def test_what_becomes_of_a_vm_is_heard_of_where_it_gives_something_back(store: Store) -> None:
    reader = Reader(store)
    with store.begin() as tx:
        has_one(tx)
    reader.news()
    life: list[tuple[Callable[[Transaction], object], bool]] = [
        (lambda tx: tx.vms.update(replace(vm("a"), state="running")), False),
        (lambda tx: tx.claims.free_place(vm("a").id, CLEANED), True),
        (lambda tx: tx.vms.update(replace(vm("a"), state="stopped", deallocated="lease_over")), True),
        (lambda tx: tx.vms.remove(vm("a").id, CLEANED), True),
    ]
    for change, heard in life:
        with store.begin() as tx:
            change(tx)
        assert reader.news() == ({"h1"} if heard else set())


def test_what_was_taken_back_is_no_change(store: Store) -> None:
    reader = Reader(store)
    reader.news()
    few = HostCapacity(vcpus=0, memory_mib=0, disk_bytes=0)
    with pytest.raises(ClaimLost):
        put(store, vm("a"), claim(vm("a"), 0), few)
    assert reader.news() == set()


def test_a_host_that_is_added_again_is_heard_of(store: Store) -> None:
    reader = Reader(store)
    reader.news()
    turns: list[Callable[[Transaction], object]] = [
        lambda tx: tx.hosts.remove("h1"),
        lambda tx: tx.hosts.add(replace(host("h1"), address="other.test")),
    ]
    for change in turns:
        with store.begin() as tx:
            change(tx)
        assert reader.news() == {"h1"}


def test_what_is_read_of_a_host_is_what_was_stored(store: Store) -> None:
    with store.begin() as tx:
        has_one(tx)
    with store.read() as tx:
        (one,) = tx.fleet.hosts({"h1", "never"})
        everything = {found.host.name: found for found in tx.fleet.hosts(None)}
        assert one == everything["h1"]
        assert one.host == tx.hosts.get("h1")
        assert one.claims == tx.claims.of_host("h1")
        assert one.vms == tx.vms.list(host="h1")
        assert tx.hosts.snapshot("h1") == SNAPSHOT
    assert one.facts == facts_of(SNAPSHOT)
    assert everything["h2"].claims == ()


def test_who_commits_after_others_that_began_later_is_not_missed(store: Store, url: str) -> None:
    if url.startswith("sqlite"):
        return  # there the second one waits for the first
    reader = Reader(store)
    reader.news()
    with store.claim() as slow:
        has_one(slow)
        with store.claim() as quick:
            quick.hosts.update(replace(quick.hosts.get("h2"), cordoned=True))
        assert reader.news() == {"h2"}
    assert reader.news() == {"h1"}
    assert reader.news() == set()


def test_claims_of_one_host_wait_for_each_other_and_only_what_is_left_is_taken(store: Store) -> None:
    few = HostCapacity(vcpus=3, memory_mib=100, disk_bytes=100)

    def race(number: int) -> int:
        of = vm(f"racer-{number}", number)
        try:
            with store.claim() as tx:
                tx.vms.add(of)
                tx.claims.take(claim(of, number), few)
        except ClaimLost:
            return 0
        return 1

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(race, range(8))) == 3


def test_the_books_of_a_host_are_the_sum_of_its_claims_whatever_is_taken_and_given_back(store: Store) -> None:
    chance = random.Random(1)
    most = HostCapacity(vcpus=12, memory_mib=100, disk_bytes=100)
    for _ in range(60):
        of = vm(f"vm-{chance.randrange(6)}")
        with suppress(ClaimLost, Conflict), store.claim() as tx:
            wanted = claim(of, chance.randrange(16), vcpus=chance.randrange(1, 5))
            there = tx.vms.find_id(of.id)
            if there is None:
                tx.vms.add(of)
                tx.claims.take(wanted, most)
            elif there.deallocated is not None:
                tx.claims.take(wanted, most)
                tx.vms.update(replace(there, deallocated=None))
            elif chance.random() < 0.5:
                tx.claims.free_place(of.id, CLEANED)
                tx.vms.update(replace(there, state="stopped", deallocated="lease_over"))
            else:
                tx.vms.remove(of.id, CLEANED)
        with store._connections.engine.connect() as db:
            shares = db.execute(select(host_claims).where(host_claims.c.host == "h1")).all()
            books = db.execute(select(host_usage).where(host_usage.c.host == "h1")).one()
        assert (books.vcpus, books.memory_mib, books.disk_bytes) == (
            sum(one.vcpus for one in shares),
            sum(one.memory_mib for one in shares),
            sum(one.disk_bytes for one in shares),
        )
        assert books.vcpus <= most.vcpus


def test_a_host_that_has_less_than_is_claimed_refuses_what_is_new_and_keeps_what_is_there(store: Store) -> None:
    put(store, vm("a"), claim(vm("a"), 0, vcpus=4))
    less = HostCapacity(vcpus=2, memory_mib=100, disk_bytes=100)
    with pytest.raises(ClaimLost):
        put(store, vm("b"), claim(vm("b"), 1, vcpus=1), less)
    with store.begin() as tx:
        tx.vms.remove(vm("a").id, CLEANED)
    put(store, vm("b"), claim(vm("b"), 1, vcpus=1), less)


def test_what_was_observed_of_a_host_that_is_gone_is_left(store: Store) -> None:
    with store.begin() as tx:
        tx.hosts.remove("h1")
    with store.begin() as tx:
        assert not tx.hosts.put_snapshot("h1", SNAPSHOT, 2)
        tx.hosts.observed("h1", 1.0)
    with store.read() as tx:
        assert [one.name for one in tx.hosts.list()] == ["h2"]
