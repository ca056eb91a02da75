# SPDX-License-Identifier: Apache-2.0
"""CPUs that VMs have alone are rows: no CPU of a host is two VMs', and CPUs are divided before VMs come."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from orchestrator.core.errors import Conflict
from orchestrator.core.hosts.cpus import CpuPlace
from orchestrator.core.vms.claim import Claim
from orchestrator.core.vms.vm import Vm
from orchestrator.store.database import Store
from orchestrator.store.records import ClaimLost
from tests.contract.store.test_store import AMPLE, claim, host, put, vm
from tests.fakes.cleaned import CLEANED

KEPT = replace(AMPLE, pinnable="4-11")
PLACE = CpuPlace(shared=(0, 1), pinned=(4, 5), threads=2, nodes=(0,), memory="strict")


@pytest.fixture
def kept(store: Store) -> Store:
    with store.begin() as tx:
        tx.hosts.keep_cpus("h1", tuple(range(4, 12)))
    return store


def own(of: Vm, slot: int, *cpus: int) -> Claim:
    return replace(claim(of, slot, vcpus=0), cpus=cpus)


def test_what_a_vm_has_alone_is_read_as_it_was_stored(kept: Store) -> None:
    one = replace(vm("a"), cpus=PLACE)
    put(kept, one, own(one, 1, 4, 5), KEPT)
    with kept.read() as tx:
        assert tx.hosts.get("h1") == replace(host(), pinnable_cpus=tuple(range(4, 12)))
        assert tx.vms.find_id(one.id) == one
        assert tx.claims.find(one.id) == own(one, 1, 4, 5)
        (record,) = tx.fleet.hosts(["h1"])
    assert (record.claims, record.vms) == ((own(one, 1, 4, 5),), (one,))


def test_the_firmware_that_a_vm_boots_by_is_read_as_it_was_stored(kept: Store) -> None:
    one = replace(vm("a"), firmware="uefi")
    put(kept, one, own(one, 1, 4, 5), KEPT)
    with kept.read() as tx:
        assert tx.vms.find_id(one.id) == one


def test_a_cpu_is_one_vms_until_that_gives_its_place_back(kept: Store) -> None:
    put(kept, vm("a"), own(vm("a"), 1, 4, 5), KEPT)
    with pytest.raises(ClaimLost):
        put(kept, vm("b"), own(vm("b"), 2, 5, 6), KEPT)
    with kept.read() as tx:
        assert tx.vms.find_id(vm("b").id) is None
    with kept.begin() as tx:
        tx.claims.free_place(vm("a").id, CLEANED)
    put(kept, vm("b"), own(vm("b"), 2, 5, 6), KEPT)
    with kept.begin() as tx:
        tx.vms.remove(vm("b").id, CLEANED)
        tx.claims.take(own(vm("a"), 3, 5, 6), KEPT)
        assert tx.claims.list() == (own(vm("a"), 3, 5, 6),)


def test_a_claim_that_was_planned_with_other_cpus_kept_is_lost(kept: Store) -> None:
    for planned in ("", "4-9"):
        with pytest.raises(ClaimLost):
            put(kept, vm("a"), claim(vm("a"), 1), replace(AMPLE, pinnable=planned))
    put(kept, vm("a"), claim(vm("a"), 1), KEPT)


def test_cpus_are_kept_before_vms_come(kept: Store) -> None:
    put(kept, vm("a"), claim(vm("a"), 1), KEPT)
    with pytest.raises(Conflict) as refused, kept.begin() as tx:
        tx.hosts.keep_cpus("h1", (4, 5))
    assert refused.value.code == "host.has_vms"
    with kept.begin() as tx:
        tx.vms.remove(vm("a").id, CLEANED)
        tx.hosts.keep_cpus("h1", ())
        assert tx.hosts.get("h1").pinnable_cpus == ()


def test_whoever_stores_a_host_leaves_its_kept_cpus_as_they_are(kept: Store) -> None:
    with kept.begin() as tx:
        tx.hosts.update(replace(host(), cordoned=True))
        assert tx.hosts.get("h1").pinnable_cpus == tuple(range(4, 12))


def race(store: Store, wanted: Sequence[Claim]) -> list[str]:
    """VMs that got theirs when all ask at once."""

    def take(one: Claim) -> str | None:
        try:
            put(store, replace(vm(one.vm), id=one.vm), one, KEPT)
        except ClaimLost:
            return None
        return one.vm

    with ThreadPoolExecutor(max_workers=len(wanted)) as pool:
        return [name for name in pool.map(take, wanted) if name is not None]


def test_of_many_that_ask_for_a_cpu_at_once_one_gets_it(kept: Store) -> None:
    names = [f"vm{number}" for number in range(6)]
    wanted = [own(replace(vm(name), id=name), number, 4 + number % 2) for number, name in enumerate(names)]
    won = race(kept, wanted)
    with kept.read() as tx:
        stored = tx.claims.list()
    assert sorted(one.vm for one in stored) == sorted(won)
    assert sorted(cpu for one in stored for cpu in one.cpus) == [4, 5]
