# SPDX-License-Identifier: Apache-2.0
"""A host labelled ``kept-for=TENANT`` takes VMs of that tenant only, whoever plans: a place, a preemption."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.core.advice.explain import explain
from orchestrator.core.labels import KEPT_FOR
from orchestrator.core.placement.engine import PlacementEngine
from orchestrator.core.placement.place import place
from orchestrator.core.placement.preemption import place_preempting
from orchestrator.core.placement.rules.labels import facts_of
from orchestrator.core.placement.views import HostView, Occupied, Placement, Refusal
from tests.unit.placement.fleets import ask, capacity, gpus, host

T4, Q8, Q16 = "Tesla T4", "GRID T4-8Q", "GRID T4-16Q"


def kept(name: str, tenant: str | None = "vision", *, count: int = 1) -> HostView:
    view = host(name, gpus(T4, count, "time_sliced"))
    return view if tenant is None else replace(view, facts=facts_of(((KEPT_FOR, tenant),)))


def holding(view: HostView, vm_id: str, tenant: str, size: str = Q16) -> HostView:
    """With a VM on its first GPU."""
    held = Occupied(vm_id=vm_id, profile=size, start=0, size=1, tenant=tenant, vcpus=1, memory_mib=1024)
    cut = "time_sliced:16384" if size == Q16 else "time_sliced:8192"
    first = replace(view.gpus[0], cut=cut, occupied=(held,))
    return replace(view, gpus=(first, *view.gpus[1:]), vms=frozenset({vm_id}))


@pytest.mark.parametrize("profile", [Q8, "gpu:1"])
@pytest.mark.parametrize("count, named", [(1, None), (1, "kept"), (2, None)])
def test_only_its_tenant_is_placed_on_it(profile: str, count: int, named: str | None) -> None:
    request = ask("vm", profile, count=count, host=named)
    fleet = [kept("kept", count=2)]
    assert isinstance(place(request, fleet), Refusal)
    found = place(replace(request, tenant="vision"), fleet)
    assert isinstance(found, Placement)
    assert found.host_id == "kept"


def test_a_refusal_says_in_one_line_for_whom_hosts_are_kept() -> None:
    answer = place(ask("vm", Q8), [kept("a"), kept("b"), kept("c", "speech")])
    assert isinstance(answer, Refusal)
    assert [(one.code, one.message, one.subjects) for one in answer.reasons] == [
        ("host.kept", "the host is kept for another tenant: vision", ("a", "b")),
        ("host.kept", "the host is kept for another tenant: speech", ("c",)),
    ]


def test_others_go_where_nothing_is_kept_and_its_tenant_may_go_there_as_well() -> None:
    fleet = [kept("kept"), kept("open", None)]
    found = place(ask("vm", Q8), fleet)
    assert isinstance(found, Placement)
    assert found.host_id == "open"
    engine = PlacementEngine(fleet)
    for number in range(4):
        request = ask(f"vm{number}", Q8, tenant="vision")
        plan = engine.plan(request)
        assert plan is not None
        engine.take(request, plan)
    assert engine.plan(ask("more", Q8, tenant="vision")) is None


def test_a_host_that_is_kept_no_more_takes_anybody_again() -> None:
    engine = PlacementEngine([kept("a")])
    assert engine.plan(ask("vm", Q8)) is None
    engine.replace_host(kept("a", None))
    assert engine.plan(ask("vm", Q8)) is not None
    assert engine.kept == 0
    engine.replace_host(kept("a"))
    assert engine.plan(ask("vm", Q8)) is None
    engine.remove_host("a")
    assert engine.kept == 0


def test_nobody_is_stopped_there_for_another_tenant() -> None:
    full = holding(kept("a"), "low", "vision")
    assert place_preempting(ask("vm", Q16, priority=5), [full], {"low"}) is None
    found = place_preempting(ask("vm", Q16, priority=5, tenant="vision"), [full], {"low"})
    assert found is not None
    assert found[1].victims == ("low",)


def test_a_remedy_makes_room_only_where_the_tenant_may_be() -> None:
    fleet = [holding(kept("a"), "x", "vision"), holding(kept("b", None), "y", "t")]
    found = explain(ask("vm", Q16), fleet)
    assert not found.fits
    assert {remedy.host for remedy in found.remedies} == {"b"}


def test_capacity_counts_kept_hosts_for_their_tenant() -> None:
    fleet = [kept("a", count=4), kept("b", None, count=2)]
    rows = capacity([ask("vm", Q16), ask("vm", Q16, tenant="vision")], fleet)
    assert [row.fits_now for row in rows] == [2, 6]
