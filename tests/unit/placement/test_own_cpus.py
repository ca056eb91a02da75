# SPDX-License-Identifier: Apache-2.0
"""VMs with CPUs of their own: counted by NUMA node, taken and given back exactly, told in words."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from orchestrator.core.advice.alike import OneOfEach
from orchestrator.core.advice.remedies import remedies
from orchestrator.core.placement.engine import PlacementEngine
from orchestrator.core.placement.place import place
from orchestrator.core.placement.preemption import plan_preemption
from orchestrator.core.placement.rules.nodes import cpus_of, memory_of, own_of
from orchestrator.core.placement.views import HostView, Placement, Refusal, Request
from tests.bench.placement.moves.engine import MovingEngine
from tests.bench.placement.moves.trial import MovingTrial
from tests.unit.placement.fleets import ask, gpus, having, host

PROFILE = "NVIDIA L40S-12Q"


def two_nodes(name: str = "h", first: int = 8, second: int = 8, *, vcpus: int = 64) -> HostView:
    """Two GPUs, one near each node, cores of two threads."""
    return having(
        host(name, gpus("L40S", 2, "time_sliced"), vcpus=vcpus), numa_free_vcpus=((0, first), (1, second)),
        numa_free_memory=((0, 8192), (1, 8192)), core_threads=2, pinnable=16,
    )  # fmt: skip


def own(vm_id: str, vcpus: int, **more: object) -> Request:
    return ask(vm_id, PROFILE, vcpus=0, pinned=vcpus, **more)


def rooms(engine: PlacementEngine) -> list[tuple[dict[int, int], dict[int, int], int]]:
    return [(cpus_of(one.free), memory_of(one.free, 0), one.vcpus) for one in engine.fleet.hosts]


@pytest.mark.parametrize("rooms_of", [(0, 8), (8, 0)])
def test_who_insists_on_a_node_gets_the_one_with_cpus_whichever_gpu_comes_first(rooms_of: tuple[int, int]) -> None:
    """One of a host's empty GPUs stands for all of them where nothing else tells them apart."""
    found = place(own("v", 4, numa_strict=True), [two_nodes("a", *rooms_of)])
    assert isinstance(found, Placement)
    assert isinstance(place(own("v", 10, numa_strict=True), [two_nodes("a", *rooms_of)]), Refusal)


def test_what_a_vm_has_alone_is_taken_and_given_back_exactly() -> None:
    engine, random = PlacementEngine([two_nodes("a"), two_nodes("b", 4, 2)]), Random(7)
    before = rooms(engine)
    placed: list[str] = []
    for number in range(300):
        if placed and random.random() < 0.5:
            engine.release(placed.pop(random.randrange(len(placed))))
            continue
        request = own(f"v{number}", random.randint(1, 6), numa_strict=random.random() < 0.5)
        plan = engine.plan(request)
        if plan is not None:
            engine.take(request, plan)
            placed.append(request.vm_id)
        for cpus, memory, vcpus in rooms(engine):
            assert min(*cpus.values(), *memory.values()) >= 0
            assert vcpus == 64
        held = sum(sum(cpus_of(dict(one.spent)).values()) for one in engine.vms.values())
        assert held == sum(-(-own_of(one.request.needs)[0] // 2) * 2 for one in engine.vms.values())
    for name in placed:
        engine.release(name)
    assert rooms(engine) == before


def test_a_move_that_is_taken_back_leaves_every_node_as_it_was() -> None:
    engine = MovingEngine([two_nodes("a"), two_nodes("b")])
    request = own("v", 4, numa_strict=True, host="a")
    plan = engine.plan(request)
    assert plan is not None
    engine.take(request, plan)
    before = rooms(engine)
    trial = MovingTrial(engine)
    elsewhere = engine.plan(own("v", 4, numa_strict=True, host="b"))
    assert elsewhere is not None
    trial.move("v", elsewhere)
    assert rooms(engine) != before
    trial.undo()
    assert rooms(engine) == before


@pytest.mark.parametrize(
    ("changed", "request_", "code"),
    [
        ({"pinnable": None, "numa_free_vcpus": ()}, own("v", 2), "host.cpus_unknown"),
        ({"pinnable": 0, "numa_free_vcpus": ()}, own("v", 2), "host.none_pinnable"),
        ({"numa_free_vcpus": ((0, 2), (1, 0))}, own("v", 3), "host.cpus"),
        ({"numa_free_vcpus": ((0, 2), (1, 2))}, own("v", 3, numa_strict=True), "host.numa"),
        ({"numa_free_memory": ((0, 512), (1, 512))}, own("v", 2, numa_strict=True), "host.numa"),
    ],
)
def test_why_a_host_has_no_cpus_for_a_vm_is_told(changed: dict[str, Any], request_: Request, code: str) -> None:
    answer = place(request_, [having(two_nodes(), **changed)])
    assert isinstance(answer, Refusal)
    assert {reason.code for reason in answer.reasons} == {code}


def test_a_gpu_that_says_no_node_is_near_the_only_one() -> None:
    alone = having(two_nodes(), numa_free_vcpus=((0, 4),), numa_free_memory=((0, 8192),))
    alone = replace(alone, gpus=tuple(replace(gpu, numa=None) for gpu in alone.gpus))
    assert isinstance(place(own("v", 4, numa_strict=True), [alone]), Placement)
    both = having(alone, numa_free_vcpus=((0, 4), (1, 4)))
    assert isinstance(place(own("v", 4, numa_strict=True), [both]), Refusal)


def test_whole_gpus_of_who_insists_on_a_node_are_all_of_it() -> None:
    wide = having(
        host("h", gpus("L40S", 4)), numa_free_vcpus=((0, 2), (1, 8)), core_threads=2, pinnable=16,
    )  # fmt: skip
    found = place(ask("v", "gpu:2", vcpus=0, pinned=4, numa_strict=True), [wide])
    assert isinstance(found, Placement)
    assert {gpu.numa for gpu in wide.gpus if gpu.gpu_id in found.gpu_ids} == {1}


def test_as_many_fit_as_there_are_cpus_for_on_hosts_that_are_alike() -> None:
    hosts = [two_nodes(f"h{number}", 8, 4) for number in range(3)]
    each = OneOfEach.among(hosts)
    assert len(each.kinds) == 1
    assert each.room(own("v", 4)) == 9
    assert each.room(own("v", 3, numa_strict=True)) == 9
    assert len(OneOfEach.among([*hosts, two_nodes("other", 8, 6)]).kinds) == 2


def test_a_vm_whose_going_frees_cpus_is_a_remedy_and_a_victim() -> None:
    held = having(two_nodes("a", 4, 0), pinnable=4)
    engine = PlacementEngine([held])
    first = own("first", 4)
    plan = engine.plan(first)
    assert plan is not None
    engine.take(first, plan)
    wanted = own("next", 2, priority=5)
    assert engine.plan(wanted) is None
    found = plan_preemption(engine, wanted)
    assert found is not None
    assert found.victims == ("first",)
    seen = engine.fleet.hosts[0]
    items = tuple(tuple(item for _, item in gpu.held) for gpu in seen.gpus)
    now = replace(
        held, free=tuple(seen.free.items()), vms=frozenset({"first"}),
        gpus=tuple(
            replace(view, occupied=there, cut="time_sliced:12288" if there else None)
            for view, there in zip(held.gpus, items, strict=True)
        ),
    )  # fmt: skip
    told = remedies(PlacementEngine([now]), wanted)
    assert [(one.kind, [action.vm_id for action in one.actions]) for one in told] == [("deletions", ["first"])]
