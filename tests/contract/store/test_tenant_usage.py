# SPDX-License-Identifier: Apache-2.0
"""What tenants hold is counted where VMs and volumes are stored, as every database must do it."""

from __future__ import annotations

import random
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import psycopg
import pytest
from sqlalchemy import select

from orchestrator.core.gpu.device import Device
from orchestrator.core.tenancy.access import EVERYWHERE
from orchestrator.core.tenancy.quota import Limit
from orchestrator.core.tenancy.tenant import Tenant
from orchestrator.core.vms.vm import Vm
from orchestrator.core.vms.volume import Volume
from orchestrator.store.database import Store
from orchestrator.store.records import ClaimLost
from orchestrator.store.tables import tenant_usage
from orchestrator.store.transaction import Transaction
from tests.contract.store.test_store import GPU, IMAGE, KEY, host, vm
from tests.fakes.cleaned import CLEANED
from tests.fakes.recount import miscounted
from tests.postgres.cluster import Cluster

TENANTS = ("a", "b", "c")
TYPES = ("GRID T4-1Q", "GRID T4-2Q", "NVIDIA A100-1-10C")
CHANGES = 200


def of(tenant: str, name: str, type_name: str = TYPES[0]) -> Vm:
    made = vm(name)
    device = Device(kind="mdev", gpu=GPU, parent=GPU, type_name=type_name, name="u")
    return replace(made, id=f"{tenant}-{name}", spec=replace(made.spec, tenant=tenant), devices=(device,))


def volume(tenant: str, number: int) -> Volume:
    return Volume(
        id=f"{tenant}-v{number}", tenant=tenant, name=f"v{number}", size_bytes=number * 2**20 + 1, host="h1", vm=None,
        state="ready", created_at=0.0,
    )  # fmt: skip


def change(tx: Transaction, chance: random.Random, number: int) -> None:
    """Whatever may happen to what a tenant has."""
    tenant, there = chance.choice(TENANTS), tx.vms.list()
    some = chance.choice(there) if there else None
    match chance.choice(("add", "add", "remove", "deallocate", "place", "volume", "drop", "lose", "put back")):
        case "add":
            tx.vms.add(of(tenant, f"n{number}", chance.choice(TYPES)))
        case "remove" if some is not None:
            tx.vms.remove(some.id, CLEANED)
        case "deallocate" if some is not None:
            tx.vms.deallocate(some.id, "lease_over", some.devices)
        case "place" if some is not None:
            tx.vms.update(replace(some, deallocated=None, devices=of(tenant, "x", chance.choice(TYPES)).devices))
        case "volume":
            tx.volumes.add(volume(tenant, number), None)
        case "drop":
            for one in tx.volumes.list()[:1]:
                tx.volumes.remove(one.id)
        case "lose" if not number % 10:
            tx.volumes.lose("h1")
        case "put back":
            for one in tx.volumes.list()[:1]:
                tx.volumes.deleting(one.id, ready=True)


def test_whatever_happens_the_counters_say_what_the_rows_say(store: Store) -> None:
    chance = random.Random(88)
    for number in range(CHANGES):
        with store.begin() as tx:
            for at in range(chance.choice((1, 2, 3))):
                change(tx, chance, 10 * number + at)
        with store.read() as tx:
            assert list(miscounted(tx)) == []
    with store.read() as tx:
        assert any(tx.vms.list(tenant=tenant) for tenant in TENANTS)
        assert tx.volumes.list()


def test_what_was_rolled_back_is_not_counted_and_a_tenant_takes_its_counters_along(store: Store) -> None:
    with store.begin() as tx:
        tx.tenants.add(Tenant(name="a", created_at=0.0))
        tx.vms.add(of("a", "kept"))
    with suppress(ZeroDivisionError), store.begin() as tx:
        tx.vms.add(of("a", "gone"))
        raise ZeroDivisionError
    with store.begin() as tx:
        assert tx.quotas.used("a")["vms"] == 1
        tx.vms.remove("a-kept", CLEANED)
    with store.begin() as tx:
        tx.tenants.remove("a")
        assert tx.connection.execute(select(tenant_usage)).all() == []


def test_of_the_pool_counts_what_is_beyond_each_tenants_own(store: Store) -> None:
    with store.begin() as tx:
        for tenant, own in (("a", 1), ("b", 5)):
            tx.quotas.put(Limit(tenant=tenant, resource="vms", amount=own))
        tx.quotas.put(Limit(tenant=EVERYWHERE, resource="vms", amount=9))
        for tenant in TENANTS:
            for number in range(3):
                tx.vms.add(of(tenant, f"n{number}"))
    with store.read() as tx:
        drawn = {besides: tx.quotas.drawn(besides=besides) for besides in (*TENANTS, EVERYWHERE)}
    assert drawn == {"a": {"vms": 3}, "b": {"vms": 5}, "c": {"vms": 2}, EVERYWHERE: {"vms": 5}}


@pytest.mark.parametrize("owner", ["a", EVERYWHERE])
def test_of_two_claims_side_by_side_for_the_last_piece_the_second_waits_and_is_lost(
    postgres: Cluster, owner: str
) -> None:
    """Both have found the quota free, and neither sees the other's VM."""
    url = postgres.database()
    one, other = (Store(url, key=KEY, new_site="site") for _ in range(2))
    with one.begin() as tx:
        for name in ("h1", "h2"):  # two claims on one host would wait for its counters already
            tx.hosts.add(host(name))
        tx.images.add(IMAGE)
        tx.quotas.put(Limit(tenant=owner, resource="vms", amount=1))

    def claim() -> bool:
        try:
            with other.claim() as tx:
                tx.vms.add(replace(of("a" if owner == "a" else "b", "late"), host="h2"))
        except ClaimLost:
            return False
        return True

    with ThreadPoolExecutor(1) as threads:
        with one.claim() as tx:
            tx.vms.add(of("a", "first"))
            tx.tenant_usage.write(within_limits=True)  # as at its end, which is not yet
            late = threads.submit(claim)
            until_it_waits(url, late)
        assert late.result() is False
    with one.read() as tx:
        assert [vm.spec.name for vm in tx.vms.list()] == ["first"]
        assert list(miscounted(tx)) == []
    one.close()
    other.close()


def until_it_waits(url: str, late: Future[bool]) -> None:
    """For a lock in the database, or has ended."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    deadline = time.monotonic() + 60
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as looking:
        while not late.done() and looking.execute(waiting).fetchall() == [(0,)]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
