# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.core.advice.explain import explain
from orchestrator.core.advice.remedies import Remedy
from orchestrator.core.placement.engine import PlacementEngine
from orchestrator.core.placement.place import place
from orchestrator.core.placement.victims import VictimSearch, vms_on, without
from orchestrator.core.placement.views import HostView, Occupied, Placement
from tests.unit.placement.explain_cases import A100, CASES, L4, L4_MIXED, asks, gpu, host, vm

SIZES = {"1g.5gb": 1, "2g.10gb": 2, "3g.20gb": 4, "7g.40gb": 8}
FILLS = st.lists(st.lists(st.sampled_from(sorted(SIZES)), max_size=7), min_size=1, max_size=3)


def _mig_host(name: str, profiles: Sequence[str]) -> HostView:
    empty = host(name, gpu("41", A100))
    engine = PlacementEngine([empty])
    held: list[Occupied] = []
    for number, profile in enumerate(profiles):
        request = replace(asks(profile, memory_mib=1024), vm_id=f"{name}-{number}", vcpus=1)
        plan = engine.plan(request)
        if plan is not None:
            start = engine.take(request, plan).parts[0].start
            held.append(vm(request.vm_id, profile, start, SIZES[profile]))
    return host(name, gpu("41", A100, "mig" if held else None, *held))


def _only(remedies: Sequence[Remedy]) -> Remedy:
    (remedy,) = remedies
    assert remedy.kind == "deletions"
    return remedy


def _after_deletions(hosts: Sequence[HostView], names: set[str]) -> list[HostView]:
    return [without(one, [v for v in vms_on(one).values() if v.vm_id in names]) for one in hosts]


def _fewest_deletions(hosts: Sequence[HostView], profile: str) -> int:
    for one_more in range(1, 8):
        for one in hosts:
            for names in combinations(vms_on(one), one_more):
                if isinstance(place(asks(profile), _after_deletions([one], set(names))), Placement):
                    return one_more
    return 0


@settings(max_examples=40)
@given(FILLS, st.sampled_from(sorted(SIZES)))
def test_no_smaller_set_of_deletions_would_do(fills: list[list[str]], profile: str) -> None:
    hosts = [_mig_host(f"kvm{n}", fill) for n, fill in enumerate(fills)]
    explanation = explain(asks(profile), hosts)
    if explanation.fits:
        return
    remedy = _only(explanation.remedies)
    assert len(remedy.actions) == _fewest_deletions(hosts, profile)
    gone = {action.vm_id or "" for action in remedy.actions}
    answer = place(asks(profile), _after_deletions(hosts, gone))
    assert isinstance(answer, Placement)
    assert (answer.host_id, answer.parts) == (remedy.placement.host_id, remedy.placement.parts)


def test_what_belongs_to_no_tenant_is_never_proposed() -> None:
    hosts = [host("kvm1", gpu("41", L4, "time_sliced:24576", vm("foreign", "NVIDIA L4-24Q", 0, tenant="")))]
    assert explain(asks("NVIDIA L4-4Q"), hosts).remedies == ()


def test_a_cordoned_host_is_no_remedy() -> None:
    case = CASES["mig_fragmentation"]
    hosts = [replace(one, cordoned=True) for one in case.hosts]
    assert explain(case.request, hosts).remedies == ()


def test_enough_vms_go_for_memory_and_gpu_together() -> None:
    held = (vm("a", "NVIDIA L4-12Q", 0, 12), vm("b", "NVIDIA L4-12Q", 12, 12))
    hosts = [host("kvm1", gpu("41", L4_MIXED, "mixed", *held), free_memory_mib=1024)]
    remedy = _only(explain(asks("NVIDIA L4-12Q"), hosts).remedies)
    assert {action.vm_id for action in remedy.actions} == {"a", "b"}


def test_several_devices_in_one_vm_need_room_for_all() -> None:
    hosts = [host("kvm1", gpu("41", L4, "time_sliced:12288", *(vm(n, "NVIDIA L4-12Q", i) for i, n in enumerate("ab"))))]
    remedy = _only(explain(asks("NVIDIA L4-12Q", count=2), hosts).remedies)
    assert len(remedy.actions) == 2


def test_as_many_vms_are_named_as_several_devices_take() -> None:
    """Two whole GPUs, each of which four other VMs have: more than any set on one GPU."""
    held = [[vm(f"vm{n}-{i}", "NVIDIA L4-6Q", i, 1) for i in range(4)] for n in range(3)]
    hosts = [host("kvm1", *(gpu(f"4{n}", L4, "time_sliced:6144", *there) for n, there in enumerate(held)))]
    remedy = _only(explain(asks("NVIDIA L4-24Q", count=2), hosts).remedies)
    named = {str(action.vm_id) for action in remedy.actions}
    assert len(named) == 8
    assert isinstance(place(asks("NVIDIA L4-24Q", count=2), _after_deletions(hosts, named)), Placement)


def test_of_many_hosts_that_are_alike_few_are_gone_through_for_several_devices() -> None:
    hosts = [
        host(f"kvm{number}", gpu("41", L4, "time_sliced:12288", vm(f"vm{number}", "NVIDIA L4-12Q", 0)))
        for number in range(100)
    ]
    search = VictimSearch(asks("NVIDIA L4-12Q", count=2))
    proposing = [one for one in PlacementEngine(hosts).fleet.hosts if list(search.sets(one))]
    assert 0 < len(proposing) < 20


def test_the_explained_place_is_the_place_that_would_be_taken() -> None:
    case = CASES["fits"]
    explanation = explain(case.request, case.hosts)
    assert explanation.fits
    assert explanation.placement == place(case.request, case.hosts)
