# SPDX-License-Identifier: Apache-2.0
"""Whatever is placed, freed, preempted, moved or counted: tenants that are to be kept apart are."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations, product

import pytest

from orchestrator.core.advice.alike import OneOfEach
from orchestrator.core.advice.explain import explain
from orchestrator.core.placement.engine import PlacementEngine
from orchestrator.core.placement.place import place
from orchestrator.core.placement.preemption import place_preempting
from orchestrator.core.placement.rules.rule import need_of
from orchestrator.core.placement.rules.tenants import Isolated
from orchestrator.core.placement.views import HostView, Occupied, Placement, Refusal, Request
from orchestrator.core.vms.isolation import ISOLATIONS, Isolation, may_share_gpu, may_share_host
from tests.unit.placement.fleets import ask, broken_rules, capacity, gpus, host, own_needs, settle

Q4 = "GRID T4-4Q"
A100 = "A100 PCIe 40GB"
TENANTS: dict[str, Isolation] = {"n": "none", "m": "none", "i": "instance", "j": "instance", "g": "gpu", "h": "host"}
PAIRS = list(product(ISOLATIONS, repeat=2))


def of(tenant: str, vm_id: str, profile: str = Q4, wish: Isolation | None = None) -> Request:
    return ask(vm_id, profile, tenant=tenant, isolation=wish or TENANTS[tenant], disk_gib=1)


def held(vm_id: str, profile: str, start: int, wish: Isolation) -> Occupied:
    needs = own_needs(profile, "other", isolation=wish)
    return Occupied(vm_id=vm_id, profile=profile, start=start, size=1, tenant="other", needs=needs)


def one_gpu(wish: Isolation, *, mig: bool = False, spare: bool = False) -> HostView:
    """Another tenant's VM on it; ``spare``: and an empty GPU beside it."""
    model, kind, profile = (A100, "mig", "1g.5gb") if mig else ("Tesla T4", "time_sliced", Q4)
    views = gpus(model, 2 if spare else 1, kind)
    there = held("there", profile, 0, wish)
    cut = "mig" if mig else "time_sliced:4096"
    return host("one", (replace(views[0], cut=cut, occupied=(there,)), *views[1:]))


@pytest.mark.parametrize(("mine", "theirs"), PAIRS)
@pytest.mark.parametrize("mig", [False, True])
def test_the_stricter_of_two_tenants_decides_everywhere(mine: Isolation, theirs: Isolation, mig: bool) -> None:
    wanted = of("me", "vm", "1g.5gb" if mig else Q4, mine)
    hosts = (one_gpu(theirs, mig=mig),)
    may = may_share_gpu(mine, theirs, divided=mig)
    placed, counted = place(wanted, hosts), OneOfEach.among(hosts).room(wanted)
    assert isinstance(placed, Placement) is may
    assert explain(wanted, hosts).fits is may
    assert (counted > 0) is may
    assert capacity([wanted], hosts)[0].fits_now == counted
    if isinstance(placed, Refusal):
        at = "host" if "host" in {mine, theirs} else "gpu"
        assert [reason.code for reason in placed.reasons] == [f"{at}.other_tenant"]
    own = of("other", "vm", wanted.profile, theirs)
    assert isinstance(place(own, hosts), Placement)


@pytest.mark.parametrize(("mine", "theirs"), PAIRS)
def test_an_empty_gpu_of_the_host_is_taken_unless_the_host_is_to_be_its_own(mine: Isolation, theirs: Isolation) -> None:
    wanted = of("me", "vm", wish=mine)
    placed = place(wanted, (one_gpu(theirs, spare=True),))
    assert isinstance(placed, Placement) is may_share_host(mine, theirs)
    if isinstance(placed, Placement):
        assert (placed.gpu_ids[0] == "g0") is may_share_gpu(mine, theirs, divided=False)


def test_a_request_that_says_nothing_goes_anywhere() -> None:
    assert isinstance(place(ask("vm", Q4), (one_gpu("host"),)), Placement)


def test_preempting_stops_everybody_with_whom_the_gpu_may_not_be_shared() -> None:
    strangers = tuple(held(f"v{n}", Q4, n, "instance") for n in range(4))
    (view,) = gpus("Tesla T4", 1, "time_sliced")
    there = frozenset(one.vm_id for one in strangers)
    full = replace(host("one", (replace(view, cut="time_sliced:4096", occupied=strangers),)), vms=there)
    found = place_preempting(of("me", "vm", wish="instance"), (full,), {"v0", "v1", "v2", "v3"})
    assert found is not None
    assert sorted(found[1].victims) == ["v0", "v1", "v2", "v3"]
    assert place_preempting(of("me", "vm", wish="instance"), (full,), {"v0", "v1", "v2"}) is None
    mixed = tuple(held(f"v{n}", Q4, n, "none") for n in range(4))
    shared = replace(host("one", (replace(view, cut="time_sliced:4096", occupied=mixed),)), vms=there)
    alone = place_preempting(of("me", "vm", wish="none"), (shared,), {"v0", "v1", "v2"})
    assert alone is not None
    assert len(alone[1].victims) == 1


def test_what_would_make_room_counts_all_of_the_other_tenants_vms() -> None:
    cures = explain(of("me", "vm", wish="instance"), (one_gpu("instance"),)).remedies
    assert [(cure.kind, [action.vm_id for action in cure.actions]) for cure in cures] == [("deletions", ["there"])]


def wish_of(item: Occupied) -> Isolation | None:
    need = need_of(item.needs, Isolated)
    return None if need is None else need.isolation


def _together(engine: PlacementEngine) -> list[str]:
    """GPUs and hosts on which are whom nobody may put together."""
    wrong = []
    for one in engine.fleet.hosts:
        wishes = {item.tenant: wish_of(item) for gpu in one.gpus for _, item in gpu.held}
        lonely = [name for name, wish in wishes.items() if wish == "host"]
        if lonely and len(wishes) > 1:
            wrong.append(f"{one.view.name}: {wishes}")
        for gpu in one.gpus:
            for (first, a), (second, b) in combinations(gpu.held, 2):
                divided = gpu.cut >= 0 and gpu.table.cuts[gpu.cut].divides(first.shape, second.shape)
                if a.tenant != b.tenant and not may_share_gpu(
                    wish_of(a) or "none", wish_of(b) or "none", divided=divided
                ):
                    wrong.append(f"{gpu.view.gpu_id}: {gpu.held}")
    return wrong


@pytest.mark.parametrize("seed", range(60))
def test_no_sequence_of_decisions_puts_tenants_together(seed: int) -> None:
    drawn = random.Random(seed)
    hosts = [host(f"t{n}", gpus("Tesla T4", 3, "time_sliced")) for n in range(3)]
    hosts += [host(f"a{n}", gpus(A100, 2, "mig")) for n in range(2)]
    engine = PlacementEngine(hosts)
    profiles = (Q4, "GRID T4-8Q", "1g.5gb", "2g.10gb", "3g.20gb")
    for number in range(80):
        tenant = drawn.choice(sorted(TENANTS))
        wanted = of(tenant, f"vm{number}", drawn.choice(profiles))
        match drawn.choice(("place", "place", "place", "free")):
            case "place":
                settle(engine, wanted)
            case "free" if engine.vms:
                engine.release(drawn.choice(sorted(engine.vms)))
        assert not _together(engine), number
    assert not broken_rules(engine)
    assert engine.vms
