# SPDX-License-Identifier: Apache-2.0
"""Lists of CPUs as people, the kernel and libvirt write them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.attachments.host_facts import facts_of
from orchestrator.core.errors import InvalidInput, Unknown
from orchestrator.core.hosts.cpus import MAX_CPU, HugePages, NumaNode, cpus_text, parse_cpus
from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.core.hosts.snapshot_rules import checked
from orchestrator.core.wire import snapshot_from_dict, snapshot_to_dict
from orchestrator.sim.fleet import new_machine
from orchestrator.sim.observing import snapshot_of
from orchestrator.store.snapshots import facts_from_text, facts_text

NODES = (
    NumaNode(id=0, cores=((0, 2), (1, 3)), memory_mib=1024, hugepages=(HugePages(size_kib=2048, total=8, free=7),)),
    NumaNode(id=1, cores=(), memory_mib=512),
)


def observed() -> HostSnapshot:
    return replace(snapshot_of(new_machine(1, ())), nodes=NODES)


@given(st.sets(st.integers(0, MAX_CPU), max_size=40))
def test_what_is_written_is_read_again(cpus: set[int]) -> None:
    assert parse_cpus(cpus_text(cpus)) == tuple(sorted(cpus))


def test_neighbours_are_written_as_a_range() -> None:
    assert cpus_text((8, 1, 0, 3, 9, 10)) == "0-1,3,8-10"


@pytest.mark.parametrize(
    "text", ["a", "3-1", "1,,2", "-1", "1-", "99999999", f"0-{MAX_CPU + 1}", "²", "1 2", "0x1", " ", "\t\u2003"]
)
def test_what_names_no_cpus_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_cpus(text)
    assert caught.value.code == "host.cpus_invalid"
    assert "\n" not in caught.value.message


def test_nodes_come_over_the_wire_as_they_are() -> None:
    assert snapshot_from_dict(snapshot_to_dict(observed())).nodes == NODES


def test_an_agent_that_does_not_tell_its_nodes_is_understood() -> None:
    told = snapshot_to_dict(observed())
    del told["nodes"]
    assert snapshot_from_dict(told).nodes == ()


def test_what_placement_keeps_of_nodes_is_read_again_as_one_object_for_all_hosts() -> None:
    facts = facts_of(observed())
    text = facts_text(facts)
    kept = (tuple(replace(pages, free=0) for pages in node.hugepages) for node in NODES)
    assert facts.nodes == tuple(replace(node, hugepages=pages) for node, pages in zip(NODES, kept, strict=True))
    again, another = (facts_from_text(text, facts.disk_bytes) for _ in range(2))
    assert again == facts
    assert again.nodes[0] is another.nodes[0]


@pytest.mark.parametrize(
    "nodes",
    [
        (NODES[0], NODES[0]),
        (NODES[0], replace(NODES[0], id=1)),
        (replace(NODES[0], cores=((-1,),)),),
        (replace(NODES[0], cores=((MAX_CPU + 1,),)),),
        (replace(NODES[0], cores=((),)),),
        (replace(NODES[0], memory_mib=-1),),
        (replace(NODES[0], hugepages=(HugePages(size_kib=2048, total=-1, free=0),)),),
    ],
    ids=["a node twice", "a CPU of two nodes", "below zero", "too large", "an empty core", "memory", "huge pages"],
)
def test_nodes_that_cannot_be_so_are_not_believed(nodes: tuple[NumaNode, ...]) -> None:
    with pytest.raises(Unknown) as caught:
        checked(replace(observed(), nodes=nodes))
    assert caught.value.code == "agent.answer_invalid"
