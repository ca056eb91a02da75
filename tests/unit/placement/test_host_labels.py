# SPDX-License-Identifier: Apache-2.0
"""Only hosts with the labels that were asked for will do: for a place, for whoever is stopped or moved for one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.core.advice.explain import explain
from orchestrator.core.labels import Labels
from orchestrator.core.placement.place import place
from orchestrator.core.placement.preemption import place_preempting
from orchestrator.core.placement.rules.labels import NeedsLabels, facts_of
from orchestrator.core.placement.views import HostView, Occupied, Placement, Refusal
from tests.unit.placement.fleets import ask, capacity, gpus, host

T4, Q8, Q16 = "Tesla T4", "GRID T4-8Q", "GRID T4-16Q"
GOLD: Labels = (("tier", "gold"),)
BOTH: Labels = (("rack", "3"), ("tier", "gold"))


def labelled(name: str, labels: Labels = (), *, count: int = 1) -> HostView:
    return replace(host(name, gpus(T4, count, "time_sliced")), facts=facts_of(labels))


def holding(view: HostView, *vm_ids: str, host_labels: Labels = (), size: str = Q16) -> HostView:
    """With a VM on each of its first GPUs."""
    cut = "time_sliced:16384" if size == Q16 else "time_sliced:8192"
    taken = [
        replace(gpu, cut=cut, occupied=(held(vm_id, host_labels, size),))
        for gpu, vm_id in zip(view.gpus, vm_ids, strict=False)
    ]
    return replace(view, gpus=(*taken, *view.gpus[len(taken) :]), vms=frozenset(vm_ids))


def held(vm_id: str, host_labels: Labels, profile: str) -> Occupied:
    return Occupied(
        vm_id=vm_id, profile=profile, start=0, size=1, tenant="t", vcpus=1, memory_mib=1024,
        needs=(NeedsLabels(host_labels),),
    )  # fmt: skip


def host_of(answer: Placement | Refusal) -> str:
    assert isinstance(answer, Placement)
    return answer.host_id


@pytest.mark.parametrize("profile", [Q8, "gpu:1"])
@pytest.mark.parametrize("wanted, expected", [((), "a"), (GOLD, "b"), (BOTH, "c")])
def test_a_host_has_every_label_that_is_asked_for(profile: str, wanted: Labels, expected: str) -> None:
    fleet = [labelled("a"), labelled("b", GOLD), labelled("c", BOTH)]
    assert host_of(place(ask("vm", profile, needs=(NeedsLabels(wanted),)), fleet)) == expected
    assert host_of(place(ask("vm", profile, needs=(NeedsLabels(wanted),), count=1, host="c"), fleet)) == "c"


def test_a_refusal_names_the_hosts_without_the_labels() -> None:
    answer = place(ask("vm", Q8, needs=(NeedsLabels(BOTH),)), [labelled("a"), labelled("b", GOLD)])
    assert isinstance(answer, Refusal)
    ((code, message, subjects),) = [(one.code, one.message, one.subjects) for one in answer.reasons]
    assert (code, subjects) == ("host.labels", ("a", "b"))
    assert message == "the host is not labelled rack=3,tier=gold"


def test_nobody_is_stopped_on_a_host_without_the_labels() -> None:
    full = holding(labelled("a"), "low")
    other = holding(labelled("b", GOLD), "low too")
    request = ask("vm", Q16, needs=(NeedsLabels(GOLD),), priority=5)
    assert place_preempting(request, [full], {"low"}) is None
    found = place_preempting(request, [full, other], {"low", "low too"})
    assert found is not None
    assert found[1].victims == ("low too",)


def test_a_remedy_makes_room_on_hosts_with_the_labels_only() -> None:
    request = ask("vm", Q16, needs=(NeedsLabels(GOLD),))
    fleet = [holding(labelled("a"), "x"), holding(labelled("g", GOLD), "y"), labelled("free")]
    found = explain(request, fleet)
    assert not found.fits
    assert {remedy.kind: remedy.host for remedy in found.remedies} == {"deletions": "g"}


def test_capacity_counts_hosts_with_the_labels() -> None:
    fleet = [labelled("a", count=4), labelled("b", GOLD, count=2), labelled("c", GOLD, count=2)]
    rows = capacity(
        [ask("vm", Q16), ask("vm", Q16, needs=(NeedsLabels(GOLD),)), ask("vm", Q16, needs=(NeedsLabels(BOTH),))], fleet
    )
    assert [row.fits_now for row in rows] == [8, 4, 0]
