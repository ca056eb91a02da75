# SPDX-License-Identifier: Apache-2.0
"""Memory near GPUs and huge pages: counted by NUMA node, taken and given back exactly, made room for, told in words."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest

from orchestrator.core.advice.alike import OneOfEach
from orchestrator.core.advice.remedies import remedies
from orchestrator.core.placement.engine import PlacementEngine
from orchestrator.core.placement.place import place
from orchestrator.core.placement.preemption import place_preempting, plan_preemption
from orchestrator.core.placement.rules.nodes import cpus_of, memory_of, node_of
from orchestrator.core.placement.views import HostView, Placement, Refusal, Request
from tests.unit.placement.fleets import ask, gpus, having, host

PROFILE = "NVIDIA L40S-12Q"
SMALL, LARGE = 2048, 1024 * 1024


def two_nodes(name: str = "h", *, pages: tuple[int, int] = (8192, 4096), cpus: tuple[int, int] = (8, 8)) -> HostView:
    """Two GPUs, one near each node; huge pages of 2 MiB."""
    return having(
        host(name, gpus("L40S", 2, "time_sliced"), vcpus=64), numa_free_memory=((0, 8192), (1, 8192)),
        numa_free_vcpus=((0, cpus[0]), (1, cpus[1])), numa_shared=((0, 16), (1, 8)), core_threads=2, pinnable=16,
        free_pages=((SMALL, 0, pages[0]), (SMALL, 1, pages[1])),
    )  # fmt: skip


def near(vm_id: str, memory_mib: int = 2048, **more: object) -> Request:
    return ask(vm_id, PROFILE, vcpus=2, memory_mib=memory_mib, numa_strict=True, **more)


def huge(vm_id: str, mib: int, page_kib: int = SMALL, **more: object) -> Request:
    return ask(vm_id, PROFILE, memory_mib=0, huge_mib=mib, page_kib=page_kib, **more)


def settled(engine: PlacementEngine, *requests: Request) -> list[int | None]:
    """For each the node of its GPU; None: it has no place."""
    found: list[int | None] = []
    for request in requests:
        plan = engine.plan(request)
        found.append(None if plan is None else engine.fleet.gpus[plan.gpus[0][0]].view.numa)
        if plan is not None:
            engine.take(request, plan)
    return found


def rooms(engine: PlacementEngine) -> list[tuple[dict[int, int], dict[int, dict[int, int]], int]]:
    return [(memory_of(one.free, 0), {SMALL: memory_of(one.free, SMALL)}, one.memory_mib) for one in engine.fleet.hosts]


def test_who_insists_on_a_node_without_cpus_alone_has_its_memory_there_and_no_more_than_it_has() -> None:
    engine = PlacementEngine([two_nodes()])
    found = settled(engine, *(near(f"v{number}", 4096) for number in range(5)))
    assert sorted(one for one in found if one is not None) == [0, 0, 1, 1]
    assert found[4] is None
    assert [memory_of(one.free, 0) for one in engine.fleet.hosts] == [{0: 0, 1: 0}]
    assert [cpus_of(one.free) for one in engine.fleet.hosts] == [{0: 8, 1: 8}]


@pytest.mark.parametrize(
    ("changed", "request_", "code"),
    [
        ({"numa_shared": ()}, near("v"), "host.cpus_unknown"),
        ({"numa_shared": ((0, 1), (1, 1))}, near("v"), "host.numa"),
        ({"numa_free_memory": ((0, 512), (1, 512))}, near("v"), "host.numa"),
        ({}, huge("v", 4096, LARGE), "host.no_hugepages"),
        ({"free_pages": ()}, huge("v", 4096), "host.no_hugepages"),
        ({}, huge("v", 16384), "host.hugepages"),
        ({"free_pages": ((SMALL, 0, 1024), (SMALL, 1, 1024))}, huge("v", 2048, numa_strict=True), "host.numa"),
    ],
)
def test_why_a_host_has_no_memory_for_a_vm_is_told(changed: dict[str, Any], request_: Request, code: str) -> None:
    answer = place(request_, [having(two_nodes(), **changed)])
    assert isinstance(answer, Refusal)
    assert {reason.code for reason in answer.reasons} == {code}


def test_huge_pages_are_of_the_gpus_node_where_that_has_them_and_of_several_only_where_none_has() -> None:
    engine = PlacementEngine([two_nodes(pages=(4096, 4096))])
    settled(engine, huge("wide", 6144))
    assert sorted(memory_of(dict(engine.vms["wide"].spent), SMALL).values()) == [2048, 4096]
    engine.release("wide")
    settled(engine, huge("one", 4096), huge("other", 4096))
    nodes = {name: tuple(memory_of(dict(held.spent), SMALL).items()) for name, held in engine.vms.items()}
    assert sorted(nodes.values()) == [((0, 4096),), ((1, 4096),)]
    assert nodes["one"][0][0] == engine.vms["one"].gpus[0].view.numa
    assert [one.memory_mib for one in engine.fleet.hosts] == [1 << 20]


def test_what_vms_have_of_nodes_is_given_back_exactly() -> None:
    engine, random = PlacementEngine([two_nodes("a"), two_nodes("b", pages=(2048, 0))]), Random(11)
    before = rooms(engine)
    placed: list[str] = []
    for number in range(300):
        if placed and random.random() < 0.5:
            engine.release(placed.pop(random.randrange(len(placed))))
            continue
        strict, mib = random.random() < 0.5, 512 * random.randint(1, 5)
        request = huge(f"v{number}", mib, numa_strict=strict) if random.random() < 0.5 else near(f"v{number}", mib)
        if settled(engine, request) != [None]:
            placed.append(request.vm_id)
        for memory, pages, _ in rooms(engine):
            assert min(*memory.values(), *pages[SMALL].values()) >= 0
    for name in placed:
        engine.release(name)
    assert rooms(engine) == before


def test_as_many_fit_as_there_are_pages_and_hosts_with_other_pages_are_told_apart() -> None:
    each = OneOfEach.among([two_nodes("a"), two_nodes("b"), two_nodes("c", pages=(8192, 0))])
    assert [kind.count for kind in each.kinds] == [2, 1]
    assert each.room(huge("v", 4096)) == 8
    assert each.room(huge("v", 4096, numa_strict=True)) == 8


def test_a_vm_whose_going_frees_pages_is_a_remedy() -> None:
    engine = PlacementEngine([two_nodes(pages=(4096, 0))])
    settled(engine, huge("first", 4096))
    seen = engine.fleet.hosts[0]
    now = replace(
        having(seen.view, free_pages=((SMALL, 0, 0), (SMALL, 1, 0))), vms=frozenset({"first"}),
        gpus=tuple(
            replace(gpu.view, occupied=tuple(item for _, item in gpu.held), cut=gpu.cut_name) for gpu in seen.gpus
        ),
    )  # fmt: skip
    told = remedies(PlacementEngine([now]), huge("next", 2048))
    assert [(one.kind, [action.vm_id for action in one.actions]) for one in told] == [("deletions", ["first"])]


def _full(*, strict: bool = True) -> HostView:
    """On the first GPU two VMs with two CPUs alone each, on the second one with six; nothing is left."""
    engine = PlacementEngine([two_nodes(cpus=(4, 6))])
    asked = (("a", 2, "g0", 300.0), ("b", 2, "g0", 200.0), ("c", 6, "g1", 0.0))
    for name, cpus, gpu, since in asked:
        settled(engine, ask(name, PROFILE, vcpus=0, pinned=cpus, numa_strict=strict, gpu=gpu, now_s=since))
    seen = engine.fleet.hosts[0]
    occupied = {gpu.view.gpu_id: tuple(item for _, item in gpu.held) for gpu in seen.gpus}
    return replace(
        seen.view, free=tuple(seen.free.items()), vms=frozenset({"a", "b", "c"}),
        gpus=tuple(replace(gpu, occupied=occupied[gpu.gpu_id], cut="time_sliced:12288") for gpu in seen.view.gpus),
    )  # fmt: skip


def test_as_many_give_their_place_as_the_cpus_need_and_on_the_node_that_counts() -> None:
    """One slot's VM gives two CPUs; those of another node are of no use to who insists on the first."""
    wanted, first = partial(ask, "v", PROFILE, pinned=4, numa_strict=True, now_s=1000.0), "g0"
    found = place_preempting(wanted(gpu=first), [_full()], {"a", "b", "c"})
    assert found is not None
    assert (set(found[1].victims), found[0].gpu_ids[0]) == ({"a", "b"}, "g0")
    assert place_preempting(wanted(gpu=first), [_full()], {"b", "c"}) is None
    anywhere = place_preempting(wanted(), [_full()], {"b", "c"})
    assert anywhere is not None
    assert (anywhere[1].victims, anywhere[0].gpu_ids[0]) == (("c",), "g1")


def test_a_vm_on_another_gpu_gives_cpus_to_one_that_insists_on_no_node() -> None:
    wanted = partial(ask, "v", PROFILE, now_s=1000.0, gpu="g0")
    found = place_preempting(wanted(pinned=6), [_full()], {"c"})
    assert found is not None
    assert (found[1].victims, found[0].gpu_ids[0]) == (("c",), "g0")
    cheaper = place_preempting(wanted(pinned=2), [_full()], {"a", "b", "c"})
    assert cheaper is not None
    assert cheaper[1].victims == ("a",)


def test_whoever_has_huge_pages_gives_them_to_a_vm_of_higher_priority() -> None:
    engine = PlacementEngine([two_nodes(pages=(4096, 4096))])
    settled(engine, huge("one", 4096), huge("other", 4096))
    found = plan_preemption(engine, huge("v", 4096, priority=5))
    assert found is not None
    assert len(found.victims) == 1
    both = plan_preemption(engine, huge("v", 6144, priority=5))
    assert both is not None
    assert set(both.victims) == {"one", "other"}
    assert plan_preemption(engine, huge("v", 6144, priority=5, numa_strict=True)) is None


def test_a_place_near_one_node_is_on_it() -> None:
    assert isinstance(place(near("v", 8192), [two_nodes()]), Placement)
    assert isinstance(place(near("v", 8193), [two_nodes()]), Refusal)


@pytest.mark.parametrize(
    ("shared", "free", "node"),
    [
        (((0, 64), (1, 0)), (), 0),  # node 1 is memory alone
        (((0, 0), (1, 16)), ((0, 0), (1, 4)), None),  # all CPUs of node 0 are kept for VMs, and taken
        (((0, 16), (1, 0)), ((0, 0),), 0),
    ],
)
def test_a_gpu_that_tells_no_node_is_near_the_only_one_with_cpus(
    shared: tuple[tuple[int, int], ...], free: tuple[tuple[int, int], ...], node: int | None
) -> None:
    seen = having(two_nodes(), numa_shared=shared, numa_free_vcpus=free)
    seen = replace(seen, gpus=tuple(replace(gpu, numa=None) for gpu in seen.gpus))
    assert {node_of(gpu) for gpu in PlacementEngine([seen]).fleet.gpus} == {node}
