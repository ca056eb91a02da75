# SPDX-License-Identifier: Apache-2.0
"""A place that is held for a VM that moves claims what a VM claims, and is nobody's in any list."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.core.hosts.nic import NicPlace
from orchestrator.core.vms.claim import Claim
from orchestrator.core.vms.vm import Vm
from orchestrator.store.database import Store
from orchestrator.store.records import ClaimLost
from tests.contract.store.test_store import AMPLE, claim, host, put, vm
from tests.fakes.cleaned import CLEANED
from tests.fakes.recount import miscounted

CARD = NicPlace(card="0000:01:00.0", function="0000:01:00.2", functions=4, mac="52:54:00:00:00:01", under_switch=True)
ELSEWHERE = replace(CARD, function="0000:01:00.3")


def held(store: Store, of: Vm) -> Vm:
    """A place on host h2, on other slots of a GPU of the same address."""
    place = replace(of, id="place", host="h2", nic=ELSEWHERE, state="moving")
    with store.begin() as tx:
        tx.places.hold(place)
        tx.claims.take(on_h2("place"), AMPLE)
    return place


def on_h2(owner: str) -> Claim:
    bare = claim(vm("a"), 2, 3, function="0000:41:00.6", vcpus=1)
    return replace(bare, vm=owner, host="h2", cpus=(4, 5), nic=ELSEWHERE.function)


def on_h1(owner: str) -> Claim:
    bare = claim(vm("a"), 0, 1, function="0000:41:00.4", vcpus=1)
    return replace(bare, vm=owner, cpus=(1, 2), nic=CARD.function)


@pytest.fixture
def moving(store: Store) -> Vm:
    with store.begin() as tx:
        tx.hosts.add(host("h2"))
    of = replace(vm("a"), nic=CARD, state="moving")
    put(store, of, on_h1(of.id))
    held(store, of)
    return of


def test_it_is_found_by_nobody_and_counts_on_its_host(store: Store, moving: Vm) -> None:
    with store.read() as tx:
        assert [found.id for found in tx.vms.list()] == [found.id for found in tx.vms.list(tenant="default")]
        assert [found.id for found in tx.vms.list()] == [moving.id]
        assert [found.id for found in tx.vms.list(host="h2")] == ["place"]
        assert tx.vms.find("default", "place") is None
        assert sum(tx.fleet.vm_counts(None).values()) == 1
        assert tx.vm_pages.how_many() == 1
        assert tx.claims.of_host("h2") == (on_h2("place"),)
        assert list(miscounted(tx)) == []


def test_what_it_claims_nobody_else_gets(store: Store, moving: Vm) -> None:
    for other in (claim(vm("b"), 3), replace(claim(vm("b"), 9), nic=ELSEWHERE.function)):
        with pytest.raises(ClaimLost):
            put(store, replace(vm("b"), host="h2"), replace(other, host="h2"))


def test_the_vm_changes_places_with_its_claims_and_the_rest_of_it_stays(store: Store, moving: Vm) -> None:
    for there, claims in (("h2", (on_h1("place"), on_h2(moving.id))), ("h1", (on_h1(moving.id), on_h2("place")))):
        with store.begin() as tx:
            tx.places.exchange(moving.id, "place")
        with store.read() as tx:
            nic = ELSEWHERE if there == "h2" else CARD
            assert tx.vms.find("default", "a") == replace(moving, host=there, nic=nic)
            assert sorted(tx.claims.list(), key=lambda one: one.host) == list(claims)
            assert list(miscounted(tx)) == []


def test_it_is_given_other_devices_which_the_vm_has_there(store: Store, moving: Vm) -> None:
    given = tuple(replace(device, parent="0000:41:00.7") for device in moving.devices)
    with store.begin() as tx:
        before = tx.events.newest()
        tx.places.give("place", given)
    with store.begin() as tx:
        assert tx.events.newest() == before, "a place is no VM"
        tx.places.exchange(moving.id, "place")
    with store.read() as tx:
        arrived = tx.vms.find("default", "a")
    assert arrived is not None
    assert given
    assert arrived.devices == given


def test_let_go_nothing_is_claimed_there_and_letting_go_again_is_fine(store: Store, moving: Vm) -> None:
    for _ in range(2):
        with store.begin() as tx:
            tx.places.let_go("place", CLEANED)
            assert tx.claims.of_host("h2") == ()
            assert tx.vms.list(host="h2") == ()
            assert list(miscounted(tx)) == []
    with store.read() as tx:
        assert tx.claims.of_host("h1") == (on_h1(moving.id),)


def test_a_place_of_a_removed_image_is_lost(store: Store, moving: Vm) -> None:
    gone = replace(moving, id="other-place", spec=replace(moving.spec, image="none"))
    with pytest.raises(ClaimLost), store.begin() as tx:
        tx.places.hold(gone)
