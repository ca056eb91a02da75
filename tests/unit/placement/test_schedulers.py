# SPDX-License-Identifier: Apache-2.0
"""All VMs on a GPU have its time divided in one way, whoever asks what: placing, counting, preempting, moving."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.core.advice.alike import OneOfEach
from orchestrator.core.advice.explain import explain
from orchestrator.core.gpu.vgpu_parameters import Scheduler
from orchestrator.core.placement.place import place
from orchestrator.core.placement.preemption import place_preempting
from orchestrator.core.placement.rules.scheduler import FixedScheduler
from orchestrator.core.placement.views import HostView, Occupied, Placement, Refusal, Request
from tests.unit.placement.fleets import ask, capacity, gpus, host, own_needs

Q4 = "GRID T4-4Q"
FIXED, EQUAL = Scheduler(policy="fixed_share"), Scheduler(policy="equal_share")
SLICED = Scheduler(policy="fixed_share", time_slice_ms=5)
ALL = (None, FIXED, EQUAL, SLICED)


def wish(scheduler: Scheduler | None, vm_id: str = "vm") -> Request:
    return ask(vm_id, Q4, scheduler=scheduler)


def one_gpu(scheduler: Scheduler | None, *, count: int = 1, takes: bool = True) -> HostView:
    """GPUs, on the first of which there is a VM."""
    views = tuple(
        replace(gpu, facts=() if takes else (FixedScheduler(),)) for gpu in gpus("Tesla T4", count, "time_sliced")
    )
    needs = own_needs(Q4, "other", scheduler=scheduler)
    there = Occupied(vm_id="there", profile=Q4, start=0, size=1, tenant="other", needs=needs, vcpus=1)
    made = host("one", (replace(views[0], cut="time_sliced:4096", occupied=(there,)), *views[1:]))
    return replace(made, vms=frozenset({"there"}))


@pytest.mark.parametrize("mine", ALL)
@pytest.mark.parametrize("theirs", ALL)
def test_a_vm_comes_to_lie_only_where_the_time_is_divided_as_it_wants(
    mine: Scheduler | None, theirs: Scheduler | None
) -> None:
    hosts = (one_gpu(theirs),)
    placed = place(wish(mine), hosts)
    assert isinstance(placed, Placement) is (mine == theirs)
    assert explain(wish(mine), hosts).fits is (mine == theirs)
    assert OneOfEach.among(hosts).room(wish(mine)) == (3 if mine == theirs else 0)
    assert capacity([wish(mine)], hosts)[0].fits_now == (3 if mine == theirs else 0)
    if isinstance(placed, Refusal):
        (reason,) = placed.reasons
        assert reason.code == "gpu.other_scheduler"
        named = "the driver's own scheduler" if mine is None else mine.policy.replace("_", " ")
        assert named in reason.message


@pytest.mark.parametrize("mine", ALL[1:])
def test_an_empty_gpu_takes_any_and_then_only_that_one(mine: Scheduler) -> None:
    hosts = (one_gpu(None, count=2),)
    placed = place(wish(mine), hosts)
    assert isinstance(placed, Placement)
    assert placed.gpu_ids[0] == hosts[0].gpus[1].gpu_id
    assert capacity([wish(mine)], hosts)[0].fits_now == 4


def test_a_gpu_whose_driver_has_none_to_choose_is_for_those_who_ask_for_none() -> None:
    hosts = (one_gpu(None, takes=False, count=2),)
    refused = place(wish(FIXED), hosts)
    assert isinstance(refused, Refusal)
    assert {reason.code for reason in refused.reasons} == {"gpu.no_scheduler"}
    assert isinstance(place(wish(None), hosts), Placement)


def test_whoever_has_it_divided_otherwise_has_to_go_for_a_vm_of_higher_priority() -> None:
    hosts = (one_gpu(EQUAL),)
    found = place_preempting(replace(wish(FIXED), priority=9), hosts, {"there"})
    assert found is not None
    assert found[1].victims == ("there",)
    assert place_preempting(replace(wish(FIXED), priority=9), hosts, set()) is None


def test_a_remedy_names_the_vm_whose_leaving_would_help() -> None:
    told = explain(wish(FIXED), (one_gpu(EQUAL),))
    assert not told.fits
    assert any("there" in str(remedy) for remedy in told.remedies)
