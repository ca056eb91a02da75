# SPDX-License-Identifier: Apache-2.0
"""Pools: what is claimed in one is counted once, together, and never more than it has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.core.errors import Conflict, NotFound
from orchestrator.core.hosts.pool import Pool, PoolState
from orchestrator.core.hosts.snapshot import PoolSnapshot
from orchestrator.core.vms.claim import HostCapacity
from orchestrator.store.database import Store
from orchestrator.store.records import ClaimLost
from tests.contract.store.test_volumes import DATA, GIB, MORE, VM, taken
from tests.fakes.cleaned import CLEANED

POOL = Pool(
    id="55555555-5555-4555-8555-555555555555", name="fast", state="ready", created_at=5.0, capacity_bytes=10 * GIB
)  # fmt: skip
IN_POOL = replace(DATA, pool=POOL.on_hosts)
NO_DISK = HostCapacity(vcpus=0, memory_mib=0, disk_bytes=0)


def claimed(store: Store) -> int:
    with store.read() as tx:
        return tx.pools.get("fast").claimed_bytes


def with_pool(store: Store) -> None:
    with store.begin() as tx:
        tx.pools.add(POOL)


def test_a_pool_is_called_by_its_name_and_as_hosts_do(store: Store) -> None:
    with_pool(store)
    with store.begin() as tx:
        assert tx.pools.get("fast") == tx.pools.get(POOL.on_hosts) == tx.pools.find_id(POOL.id) == POOL
        for name in ("slow", "fast.000000"):
            with pytest.raises(NotFound):
                tx.pools.get(name)
        with pytest.raises(Conflict):
            tx.pools.add(replace(POOL, id=VM))
        tx.pools.set_state(POOL.id, "deleting")
        assert tx.pools.list() == (replace(POOL, state="deleting"),)
        tx.pools.remove(POOL.id)
        tx.pools.remove(POOL.id)
        assert tx.pools.list() == ()


def test_disks_and_volumes_together_take_no_more_than_it_has(store: Store) -> None:
    with_pool(store)
    with store.claim() as tx:
        tx.pools.take("fast", VM, 3 * GIB)
        tx.volumes.add(IN_POOL, None)
    assert (claimed(store), taken(store)) == (9 * GIB, 0), "nothing of it is on a host"
    for holder in (MORE.id, "another"):
        with pytest.raises(ClaimLost), store.claim() as tx:
            tx.pools.take(POOL.on_hosts, holder, 2 * GIB)
    with store.begin() as tx:
        tx.volumes.remove(IN_POOL.id)
        tx.vms.remove(VM, CLEANED)
        tx.vms.remove(VM, CLEANED)
    assert claimed(store) == 0


def test_a_volume_in_a_pool_lies_on_no_host_whoever_has_it(store: Store) -> None:
    with_pool(store)
    with store.begin() as tx:
        tx.volumes.add(IN_POOL, None)
    with store.claim() as tx:
        tx.volumes.attach(IN_POOL, VM, "h1", NO_DISK)
        assert tx.volumes.find_id(DATA.id) == replace(IN_POOL, vm=VM)
        assert tx.volumes.list(host="h1") == ()
    with store.begin() as tx:
        tx.volumes.put_back((IN_POOL,), VM)
        assert tx.volumes.find_id(DATA.id) == IN_POOL
    assert claimed(store) == DATA.size_bytes


def test_one_that_is_just_made_or_deleted_takes_nothing(store: Store) -> None:
    with_pool(store)
    states: tuple[PoolState, ...] = ("new", "deleting")
    for state in states:
        with store.begin() as tx:
            tx.pools.set_state(POOL.id, state)
        with pytest.raises(ClaimLost), store.begin() as tx:
            tx.pools.take("fast", VM, GIB)


def test_a_pool_that_something_lies_in_is_not_removed(store: Store) -> None:
    with_pool(store)
    with store.claim() as tx:
        tx.pools.take("fast", VM, GIB)
    with pytest.raises(Exception, match=r"(?i)foreign key"), store.begin() as tx:
        tx.pools.remove(POOL.id)
    assert claimed(store) == GIB


def test_what_any_host_observes_is_its_size(store: Store) -> None:
    with_pool(store)
    seen = PoolSnapshot(name="fast", pool_id=POOL.id, capacity_bytes=20 * GIB, free_bytes=GIB)
    with store.begin() as tx:
        tx.pools.observed((seen, replace(seen, name="other", pool_id=None)))
        tx.pools.observed((replace(seen, capacity_bytes=0, problem="it cannot be read"),))
        assert tx.pools.get("fast") == replace(POOL, capacity_bytes=20 * GIB, free_bytes=GIB)
