# SPDX-License-Identifier: Apache-2.0
"""Which CPUs a VM gets: whole cores, each once, near its GPU; and which a host may keep for that."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.diff.finding import ExpectedVm
from orchestrator.core.diff.vms import vm_findings
from orchestrator.core.errors import Conflict, InvalidInput
from orchestrator.core.hosts.cpus import (
    CpuPlace,
    NumaNode,
    check_pinnable,
    choose,
    free_cores,
    parse_cpus,
    shares,
    whole_cores,
)
from orchestrator.core.hosts.snapshot import DomainSnapshot, DomainState
from orchestrator.sim.fleet import nodes_of
from tests.fakes.fake_machine import FakeMachine, snapshot_of, t4
from tests.unit.core.test_diff import GPU, KNOWN, vm

NODES = nodes_of(2, 16, 4096)
"""Cores (0, 8) to (3, 11), and (4, 12) to (7, 15)."""
EVERY = tuple(range(2, 16))


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 1), st.booleans()), max_size=8))
def test_cpus_are_given_once_in_whole_cores_and_to_who_insists_of_one_node(
    asked: list[tuple[int, int, bool]],
) -> None:
    taken: set[int] = set()
    kept = set(parse_cpus("2-7,10-15"))
    for vcpus, near, strict in asked:
        cores = free_cores(NODES, kept, taken)
        found = choose(cores, (near,), vcpus, strict=strict)
        free = {node: sum(map(len, there)) for node, there in cores.items()}
        if found is None:
            assert (free[near] if strict else sum(free.values())) < vcpus
            continue
        assert taken.isdisjoint(found.claimed)
        assert kept.issuperset(found.claimed)
        assert set(found.claimed) == set(whole_cores(NODES, found.claimed))
        assert len(found.pinned) == len(set(found.pinned)) == vcpus
        assert set(found.pinned) <= set(found.claimed)
        assert len(found.claimed) == vcpus + vcpus % 2
        assert not strict or found.nodes == (near,)
        taken.update(found.claimed)


def test_threads_of_one_core_are_neighbours_in_the_guest_where_they_fill_it() -> None:
    cores = free_cores(NODES, EVERY, ())
    even, odd = (choose(cores, (1,), vcpus, strict=True) for vcpus in (4, 3))
    assert even is not None
    assert (even.pinned, even.threads) == ((4, 12, 5, 13), 2)
    assert odd is not None
    assert (odd.pinned, odd.claimed, odd.threads) == ((4, 12, 5), (4, 12, 5, 13), 1)


def test_the_nearest_node_with_room_for_all_is_taken_and_several_only_where_none_has_it() -> None:
    assert shares({0: 4, 1: 8}, (0,), 4, strict=False) == {0: 4}
    assert shares({0: 4, 1: 8}, (0,), 6, strict=False) == {1: 6}
    assert shares({0: 4, 1: 8}, (1,), 10, strict=False) == {1: 8, 0: 2}
    assert shares({0: 4, 1: 8}, (0,), 14, strict=False) is None
    assert shares({0: 4, 1: 8}, (0,), 6, strict=True) is None
    assert shares({0: 4, 1: 8}, (), 2, strict=True) is None
    assert shares({0: 4, 1: 8}, (7,), 2, strict=False) == {0: 2}


@pytest.mark.parametrize("cpus", ["2-7,10-14", "2", "16", "0-15"])
def test_cores_are_kept_whole_and_some_are_left(cpus: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_pinnable(NODES, parse_cpus(cpus), "h1")
    assert refused.value.code == "host.cpus_invalid"


def test_none_can_be_kept_where_the_agent_does_not_tell_any() -> None:
    with pytest.raises(Conflict) as refused:
        check_pinnable((NumaNode(id=0, cores=(), memory_mib=1),), (1,), "h1")
    assert refused.value.code == "host.cpus_unknown"
    check_pinnable((), (), "h1")


@pytest.mark.parametrize(
    ("told", "is_told"),
    [
        ("huge pages of 2MiB, strict on node 1", False),
        (None, False),
        ("any", True),
        ("strict on node 1", True),
        ("huge pages of 1GiB, strict on node 1", True),
        ("huge pages of 2MiB, strict on node 0", True),
    ],
)
def test_a_running_vm_whose_memory_is_elsewhere_or_of_other_pages_is_a_finding(told: str | None, is_told: bool) -> None:
    place = CpuPlace(shared=(0, 1), nodes=(1,), memory="strict", page_kib=2048, page_mib=(4096,))
    wanted = replace(vm(KNOWN[0]), cpus=place)
    domain = DomainSnapshot(
        uuid=wanted.id, name=wanted.domain_name, state="running", owner=wanted.id, devices=(), memory_words=told
    )
    snapshot = replace(snapshot_of(FakeMachine(machine_id="m", gpus=[t4(GPU)])), domains=(domain,))
    found = [
        one for one in vm_findings(ExpectedVm(vm=wanted, claimed=True), snapshot) if one.code == "vm.memory_differs"
    ]
    assert bool(found) is is_told


@pytest.mark.parametrize(
    ("affinity", "state", "is_told"),
    [
        (("4",), "running", False),
        (None, "running", False),
        ((), "shut_off", False),
        ((), "running", True),
        (("5",), "running", True),
        (("any of 0-1",), "paused", True),
    ],
)
def test_a_running_vm_that_is_on_other_cpus_is_a_finding(
    affinity: tuple[str, ...] | None, state: DomainState, is_told: bool
) -> None:
    wanted = replace(vm(KNOWN[0]), cpus=CpuPlace(shared=(0, 1), pinned=(4,)))
    there = DomainSnapshot(
        uuid=wanted.id, name=wanted.domain_name, state="running", owner=wanted.id, devices=(), affinity=affinity
    )
    domain = replace(there, state=state)
    snapshot = replace(snapshot_of(FakeMachine(machine_id="m", gpus=[t4(GPU)])), domains=(domain,))
    found = [one for one in vm_findings(ExpectedVm(vm=wanted, claimed=True), snapshot) if one.code == "vm.cpus_differ"]
    assert bool(found) is is_told
    assert all(one.wanted == "vCPUs on CPUs 4" for one in found)
