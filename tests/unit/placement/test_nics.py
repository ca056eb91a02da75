# SPDX-License-Identifier: Apache-2.0
"""VMs with a function of a network card near their GPU: counted by card, given back exactly, told in words."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from orchestrator.core.advice.alike import OneOfEach
from orchestrator.core.advice.remedies import remedies
from orchestrator.core.placement.engine import PlacementEngine
from orchestrator.core.placement.place import place
from orchestrator.core.placement.preemption import Trial, plan_preemption
from orchestrator.core.placement.rules.nics import NearNics, card_of, functions_of
from orchestrator.core.placement.views import HostView, Occupied, Placement, Refusal, Request
from tests.unit.placement.fleets import ask, broken_rules, gpus, having, host

PROFILE = "NVIDIA L40S-12Q"
SWITCH, NODE = "0000:04:00.0", "0000:05:00.0"


def with_cards(name: str = "h", under: int = 1, node: int = 1, *, gpu_count: int = 2) -> HostView:
    """A card is under the first GPU's switch; another one is on the NUMA node of the others."""
    first, *others = gpus("L40S", gpu_count, "time_sliced")
    views = (
        replace(first, facts=(NearNics((SWITCH,), under_switch=True),)),
        *(replace(one, facts=(NearNics((NODE,)),)) for one in others),
    )
    return having(host(name, views), free_nics=((SWITCH, under), (NODE, node)))


def wish(vm_id: str, profile: str = PROFILE, **more: object) -> Request:
    return ask(vm_id, profile, nic=True, **more)


def codes(answer: Placement | Refusal) -> set[str]:
    assert isinstance(answer, Refusal)
    return {reason.code for reason in answer.reasons}


@pytest.mark.parametrize(
    "under, node, gpu, words", [(1, 0, "g0", "under the GPU's own PCIe switch"), (0, 1, "g1", "NUMA node, as none is")]
)
def test_a_vm_goes_to_the_gpu_that_a_free_card_is_near_and_is_told_how_near(
    under: int, node: int, gpu: str, words: str
) -> None:
    found = place(wish("v"), [with_cards("h", under, node)])
    assert isinstance(found, Placement)
    assert (found.gpu_ids[0], card_of(found.spent)) == (gpu, SWITCH if under else NODE)
    assert words in found.why


def test_each_refusal_says_what_is_missing() -> None:
    bare = host("bare", gpus("L40S", 1, "time_sliced"))
    assert codes(place(wish("v"), [bare])) == {"host.no_nic"}
    assert codes(place(wish("v"), [with_cards("h", 0, 0)])) == {"host.nics_taken"}
    assert codes(place(wish("v", gpu="g0", host="h"), [with_cards("h", 0, 1)])) == {"gpu.other", "gpu.nics_taken"}
    far = replace(with_cards(), gpus=(with_cards().gpus[0], replace(with_cards().gpus[1], facts=())))
    assert codes(place(wish("v", gpu="g1", host="h"), [far])) == {"gpu.other", "gpu.no_nic"}
    assert isinstance(place(ask("v", PROFILE), [bare]), Placement)


def test_of_a_set_of_whole_gpus_one_has_a_card_near_it() -> None:
    views = with_cards("h", 0, 1, gpu_count=4)
    found = place(wish("v", "gpu:2"), [views])
    assert isinstance(found, Placement)
    assert card_of(found.spent) == NODE
    assert codes(place(wish("v", "gpu:2"), [with_cards("h", 0, 0, gpu_count=4)])) == {"host.nics_taken"}
    with_first = place(wish("v", "gpu:4"), [with_cards("h", 1, 1, gpu_count=4)])
    assert isinstance(with_first, Placement)
    assert card_of(with_first.spent) == SWITCH


def test_a_host_without_a_free_function_hides_no_other_one_that_is_laid_out_alike() -> None:
    """What was found of one host was taken for all with the same GPUs free, whatever was near those."""
    found = place(wish("v"), [with_cards("a", 0, 0), with_cards("b", 0, 1)])
    assert isinstance(found, Placement)
    assert (found.host_id, found.gpu_ids) == ("b", ("g1",))


def test_what_is_taken_is_given_back_exactly() -> None:
    engine, random = PlacementEngine([with_cards("a", 3, 2), with_cards("b", 1, 0)]), Random(7)
    before = [dict(one.free) for one in engine.fleet.hosts]
    placed: list[str] = []
    for number in range(200):
        if placed and random.random() < 0.5:
            engine.release(placed.pop(random.randrange(len(placed))))
            continue
        request = wish(f"v{number}")
        plan = engine.plan(request)
        if plan is not None:
            engine.take(request, plan)
            placed.append(request.vm_id)
        assert len(placed) <= 6
        assert all(min(one.free.values()) >= 0 for one in engine.fleet.hosts)
    trial, left = Trial(engine), [dict(one.free) for one in engine.fleet.hosts]
    for vm_id in placed:
        trial.release(vm_id)
    assert [dict(one.free) for one in engine.fleet.hosts] == before
    trial.undo()
    assert [dict(one.free) for one in engine.fleet.hosts] == left
    assert broken_rules(engine) == []


def test_capacity_counts_functions_and_what_alone_is_short_is_found() -> None:
    assert OneOfEach.among([with_cards("a", 3, 2), with_cards("b", 3, 2)]).room(wish("v")) == 10
    assert OneOfEach.among([with_cards("a", 0, 0)]).room(wish("v")) == 0


def test_somebody_of_lower_priority_gives_a_function_back() -> None:
    engine = PlacementEngine([with_cards("a", 1, 1)])
    for request in (wish("low", priority=0), wish("high", priority=9), ask("bystander", PROFILE, priority=0)):
        plan = engine.plan(request)
        assert plan is not None
        engine.take(request, plan)
    asked = wish("v", priority=5)
    assert engine.plan(asked) is None
    found = plan_preemption(engine, asked)
    assert found is not None
    assert found.victims == ("low",)
    assert plan_preemption(engine, wish("v", priority=0)) is None


def test_a_remedy_names_who_has_a_function() -> None:
    view = with_cards("a", 0, 0)
    held = [Occupied(vm_id=name, profile=PROFILE, start=number, size=1, tenant="t", spent=functions_of(has))
            for number, (name, has) in enumerate((("other", {}), ("one", {SWITCH: 1})))]  # fmt: skip
    first = replace(view.gpus[0], cut="time_sliced:12288", occupied=tuple(held))
    engine = PlacementEngine([replace(view, gpus=(first, *view.gpus[1:]))])
    found = remedies(engine, wish("v"))
    assert {action.vm_id for remedy in found for action in remedy.actions} == {"one"}
