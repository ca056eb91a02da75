# SPDX-License-Identifier: Apache-2.0
"""A function of a network card is one VM's: unique by host and function, given back with the VM's place."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from orchestrator.core.hosts.nic import NicPlace
from orchestrator.core.vms.claim import Claim
from orchestrator.core.vms.vm import Vm
from orchestrator.store.database import Store
from orchestrator.store.records import ClaimLost
from tests.contract.store.test_store import AMPLE, claim, host, put, vm
from tests.fakes.cleaned import CLEANED

FIRST, SECOND = "0000:05:00.1", "0000:05:00.2"
PLACE = NicPlace(card="0000:05:00.0", function=FIRST, functions=2, mac="52:54:01:00:00:01", under_switch=True)


def own(of: Vm, slot: int, function: str) -> Claim:
    return replace(claim(of, slot), nic=function)


def test_what_a_vm_has_is_read_as_it_was_stored(store: Store) -> None:
    one = replace(vm("a"), nic=PLACE, spec=replace(vm("a").spec, nic="rdma"))
    put(store, one, own(one, 1, FIRST))
    with store.begin() as tx:
        tx.hosts.update(replace(host(), rdma_nics=("0000:05:00.0", "0000:06:00.0")))
    with store.read() as tx:
        assert tx.hosts.get("h1").rdma_nics == ("0000:05:00.0", "0000:06:00.0")
        assert tx.vms.find_id(one.id) == one
        assert tx.claims.find(one.id) == own(one, 1, FIRST)
        (record,) = tx.fleet.hosts(["h1"])
    assert (record.claims, record.vms) == ((own(one, 1, FIRST),), (one,))


def test_a_function_is_one_vms_until_that_gives_its_place_back(store: Store) -> None:
    put(store, vm("a"), own(vm("a"), 1, FIRST))
    put(store, vm("none"), claim(vm("none"), 4))
    put(store, vm("neither"), claim(vm("neither"), 5))
    with pytest.raises(ClaimLost):
        put(store, vm("b"), own(vm("b"), 2, FIRST))
    with store.begin() as tx:
        tx.claims.free_place(vm("a").id, CLEANED)
    put(store, vm("b"), own(vm("b"), 2, FIRST))
    with store.begin() as tx:
        tx.vms.remove(vm("b").id, CLEANED)
        tx.claims.take(own(vm("a"), 3, FIRST), AMPLE)
        assert FIRST in {one.nic for one in tx.claims.list()}


def test_placement_sees_a_host_anew_when_other_cards_are_given(store: Store) -> None:
    with store.read() as tx:
        position = tx.fleet.changes(0).position
    with store.begin() as tx:
        tx.hosts.update(replace(host(), rdma_nics=("0000:05:00.0",)))
    with store.read() as tx:
        assert "h1" in tx.fleet.changes(position).stamps


def test_of_many_that_ask_for_a_function_at_once_one_gets_it(store: Store) -> None:
    names = [f"vm{number}" for number in range(6)]

    def take(numbered: tuple[int, str]) -> bool:
        number, name = numbered
        one = replace(vm(name), id=name)
        try:
            put(store, one, own(one, number, (FIRST, SECOND)[number % 2]))
        except ClaimLost:
            return False
        return True

    with ThreadPoolExecutor(max_workers=len(names)) as pool:
        won = list(pool.map(take, enumerate(names)))
    with store.read() as tx:
        assert sorted(str(one.nic) for one in tx.claims.list()) == [FIRST, SECOND]
    assert won.count(True) == 2
