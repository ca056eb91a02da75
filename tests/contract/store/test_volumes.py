# SPDX-License-Identifier: Apache-2.0
"""Data volumes: one VM has one at a time, and what they take is counted with their host's claims."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from orchestrator.core.errors import Conflict
from orchestrator.core.vms.claim import HostCapacity
from orchestrator.core.vms.volume import Volume
from orchestrator.store.database import Store
from orchestrator.store.records import ClaimLost

GIB = 1024**3
CAPACITY = HostCapacity(vcpus=0, memory_mib=0, disk_bytes=10 * GIB)
DATA = Volume(
    id="11111111-1111-4111-8111-111111111111", tenant="red", name="data", size_bytes=6 * GIB, host=None, vm=None,
    state="new", created_at=5.0,
)  # fmt: skip
MORE = replace(DATA, id="22222222-2222-4222-8222-222222222222", name="more")
VM, OTHER = "33333333-3333-4333-8333-333333333333", "44444444-4444-4444-8444-444444444444"


def taken(store: Store) -> int:
    with store.read() as tx:
        (host,) = tx.fleet.hosts(["h1"])
        return host.volume_bytes


def lost(call: Callable[[], None]) -> None:
    with pytest.raises(ClaimLost):
        call()


def test_a_volume_is_placed_given_and_put_back(store: Store) -> None:
    with store.begin() as tx:
        tx.volumes.add(DATA, None)
        with pytest.raises(Conflict):
            tx.volumes.add(replace(DATA, id=MORE.id), None)
    assert taken(store) == 0
    with store.claim() as tx:
        tx.volumes.attach(DATA, VM, "h1", CAPACITY)
        assert tx.volumes.list(host="h1") == (replace(DATA, host="h1", vm=VM),)
        tx.volumes.made(DATA.id)
    assert taken(store) == DATA.size_bytes
    with store.begin() as tx:
        tx.volumes.put_back((DATA,), OTHER)
        assert tx.volumes.find("red", "data") == replace(DATA, host="h1", vm=VM, state="ready")
        tx.volumes.put_back((DATA,), VM)
        assert tx.volumes.find_id(DATA.id) == DATA
    assert taken(store) == 0


def test_two_vms_never_have_one_volume_and_it_never_moves(store: Store) -> None:
    with store.begin() as tx:
        tx.volumes.add(DATA, None)
    with store.claim() as tx:
        tx.volumes.attach(DATA, VM, "h1", CAPACITY)
    with store.begin() as tx:
        lost(lambda: tx.volumes.attach(DATA, OTHER, "h1", CAPACITY))
        tx.volumes.detach(DATA.id, OTHER)
        lost(lambda: tx.volumes.attach(DATA, OTHER, "h1", CAPACITY))
        tx.volumes.detach(DATA.id, VM)
        lost(lambda: tx.volumes.attach(DATA, OTHER, "h2", CAPACITY))
        tx.volumes.deleting(DATA.id)
        lost(lambda: tx.volumes.attach(DATA, OTHER, "h1", CAPACITY))
        tx.volumes.deleting(DATA.id, ready=True)
        tx.volumes.attach(DATA, OTHER, "h1", CAPACITY)


def test_a_host_holds_what_its_disk_has_and_gets_it_back(store: Store) -> None:
    with store.begin() as tx:
        tx.volumes.add(replace(DATA, host="h1"), CAPACITY)
        tx.volumes.add(MORE, None)
    with pytest.raises(ClaimLost), store.claim() as tx:
        tx.volumes.attach(MORE, VM, "h1", CAPACITY)
    with store.begin() as tx:
        assert tx.volumes.find("red", "more") == MORE
        tx.volumes.remove(DATA.id)
        tx.volumes.remove(DATA.id)
        tx.volumes.attach(MORE, VM, "h1", CAPACITY)
    assert taken(store) == MORE.size_bytes


def test_volumes_that_are_lost_take_nothing_and_are_counted_once(store: Store) -> None:
    with store.begin() as tx:
        tx.volumes.add(replace(DATA, host="h1", state="ready"), CAPACITY)
        assert (tx.volumes.lose("h1"), tx.volumes.lose("h1")) == (1, 0)
    assert taken(store) == 0
    with store.begin() as tx:
        tx.volumes.remove(DATA.id)
        tx.volumes.add(replace(MORE, host="h1"), replace(CAPACITY, disk_bytes=MORE.size_bytes))
    assert taken(store) == MORE.size_bytes
