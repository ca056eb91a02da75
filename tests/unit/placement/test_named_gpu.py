# SPDX-License-Identifier: Apache-2.0
"""Only the GPU that was named will do: for a place, for whoever is stopped for one, for every remedy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.core.advice.explain import explain
from orchestrator.core.placement.place import place
from orchestrator.core.placement.preemption import place_preempting
from orchestrator.core.placement.views import HostView, Occupied, Placement, Refusal, Request
from tests.unit.placement.fleets import ask, gpus, host

T4, Q8, Q16 = "Tesla T4", "GRID T4-8Q", "GRID T4-16Q"


def full(name: str, *kept: int) -> HostView:
    """Two GPUs with VMs ``<host>-0`` and ``<host>-1``; empty are those not ``kept``."""
    views = gpus(T4, 2, "time_sliced")
    whole = [
        replace(view, cut="time_sliced:16384", occupied=(held(f"{name}-{number}"),)) if number in kept else view
        for number, view in enumerate(views)
    ]
    return replace(host(name, tuple(whole)), vms=frozenset(f"{name}-{number}" for number in kept))


def held(vm_id: str) -> Occupied:
    return Occupied(vm_id=vm_id, profile=Q16, start=0, size=1, tenant="t", vcpus=1, memory_mib=1024)


def where(answer: Placement | Refusal) -> tuple[str, tuple[str, ...]]:
    assert isinstance(answer, Placement)
    return answer.host_id, answer.gpu_ids


@pytest.mark.parametrize("wanted", ["g0", "g1"])
@pytest.mark.parametrize("profile", [Q8, "gpu:1"])
def test_the_gpu_that_is_named_is_taken(profile: str, wanted: str) -> None:
    assert where(place(ask("a", profile, gpu=wanted), [full("h")])) == ("h", (wanted,))
    assert where(place(ask("a", profile, gpu=wanted, host="i"), [full("h"), full("i")])) == ("i", (wanted,))


def test_any_host_will_do_that_has_it_free() -> None:
    assert where(place(ask("a", Q16, gpu="g1"), [full("h", 1), full("i", 0)])) == ("i", ("g1",))


def test_a_host_without_gpus_is_no_place() -> None:
    assert isinstance(place(ask("a", Q8, gpu="g0"), [host("bare", ())]), Refusal)
    answer = place(ask("a", Q8, host="bare"), [host("bare", ()), full("h")])
    assert isinstance(answer, Refusal)
    assert {reason.code for reason in answer.reasons} == {"host.no_gpus", "host.other"}


@pytest.mark.parametrize(
    "request_", [ask("a", Q16, gpu="g1"), ask("a", "gpu:1", gpu="g1"), ask("a", "gpu:2", gpu="g1")]
)
def test_what_is_free_elsewhere_does_not_help(request_: Request) -> None:
    answer = place(request_, [full("h", 1)])
    assert isinstance(answer, Refusal)
    assert answer.code == "gpu.no_capacity"


def test_the_reasons_tell_the_named_gpu_from_the_others() -> None:
    answer = place(ask("a", Q16, gpu="g1"), [full("h", 1)])
    assert isinstance(answer, Refusal)
    assert {(reason.code, reason.subjects) for reason in answer.reasons} == {
        ("gpu.other", ("h/g0",)),
        ("gpu.no_capacity", ("h/g1",)),
    }


@pytest.mark.parametrize("profile", [Q16, "gpu:1"])
def test_only_vms_on_that_gpu_are_stopped_for_it(profile: str) -> None:
    hosts = [full("h", 0, 1)]
    for number in (0, 1):
        found = place_preempting(ask("a", profile, gpu=f"g{number}", priority=1), hosts, {"h-0", "h-1"})
        assert found is not None
        assert found[1].victims == (f"h-{number}",)
        assert found[0].gpu_ids == (f"g{number}",)


@pytest.mark.parametrize("profile", [Q16, "gpu:1"])
@pytest.mark.parametrize("wanted", [0, 1])
def test_what_would_make_it_fit_is_about_that_gpu(profile: str, wanted: int) -> None:
    answer = explain(ask("a", profile, gpu=f"g{wanted}", host="h"), [full("h", 0, 1), full("i")])
    assert {remedy.kind for remedy in answer.remedies} == {"deletions"}
    for remedy in answer.remedies:
        assert [action.vm_id for action in remedy.actions] == [f"h-{wanted}"]
        assert remedy.placement.gpu_ids == (f"g{wanted}",)
