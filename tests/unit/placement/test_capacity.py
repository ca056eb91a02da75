# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.core.advice.alike import CapacityRow, KnownRooms, OneOfEach, kinds_of
from orchestrator.core.placement.engine import PlacementEngine
from orchestrator.core.placement.place import place
from orchestrator.core.placement.rules.named import on_host
from orchestrator.core.placement.views import HostView, Placement, Refusal, Request
from tests.fakes.drawn import drawn_capacity
from tests.unit.placement.explain_cases import A100, L4, asks, gpu, host, vm
from tests.unit.placement.fleets import capacity
from tests.unit.placement.golden_text import assert_golden

EMPTY_A100 = (host("kvm1", gpu("41", A100)),)
TWO_HALF_FULL = (
    host("kvm1", gpu("41", L4, "time_sliced:4096", vm("a", "NVIDIA L4-4Q", 0))),
    host("kvm2", gpu("41", L4, "time_sliced:4096", vm("b", "NVIDIA L4-4Q", 0))),
)
TABLE: tuple[tuple[str, tuple[HostView, ...], int], ...] = (
    ("1g.5gb", EMPTY_A100, 7),
    ("2g.10gb", EMPTY_A100, 3),
    ("3g.20gb", EMPTY_A100, 2),
    ("7g.40gb", EMPTY_A100, 1),
    ("NVIDIA L4-4Q", TWO_HALF_FULL, 10),
    ("NVIDIA L4-8Q", TWO_HALF_FULL, 0),
    ("NVIDIA L4-8Q", EMPTY_A100, 0),
)


@pytest.mark.parametrize("profile, hosts, now", TABLE)
def test_as_many_fit_as_can_be_placed(profile: str, hosts: tuple[HostView, ...], now: int) -> None:
    assert capacity([asks(profile)], hosts) == (CapacityRow(profile, now),)


def test_memory_of_the_host_counts_as_well_as_the_gpu() -> None:
    hosts = (replace(EMPTY_A100[0], free_memory_mib=3 * 16384),)
    (row,) = capacity([asks("1g.5gb")], hosts)
    assert row.fits_now == 3


def test_a_gpu_that_may_not_be_used_has_no_room() -> None:
    hosts = (host("kvm1", replace(gpu("41", A100), usable=False, reason_unusable="quarantined")),)
    (row,) = capacity([asks("1g.5gb")], hosts)
    assert row.fits_now == 0


def _held(name: str, used: int) -> HostView:
    """A host whose one L4 holds so many VMs."""
    vms = tuple(vm(f"{name} {number}", "NVIDIA L4-4Q", number) for number in range(used))
    return host(name, gpu("41", L4, "time_sliced:4096", *vms) if vms else gpu("41", L4))


FLEETS = st.lists(
    st.one_of(
        st.builds(lambda used: ("l4", used), st.integers(0, 3)),
        st.builds(lambda vcpus: ("a100", vcpus), st.sampled_from([0, 5, 64])),
    ),
    min_size=1,
    max_size=5,
)
WANTED = st.sampled_from(["NVIDIA L4-4Q", "NVIDIA L4-8Q", "1g.5gb", "3g.20gb", "gpu:1", "NVIDIA T4-1Q"])


@settings(max_examples=25)
@given(kinds=FLEETS, profile=WANTED)
def test_hosts_that_are_alike_hold_as_much_as_each_of_them_filled_by_itself(
    kinds: list[tuple[str, int]], profile: str
) -> None:
    hosts = [
        _held(f"h{number}", amount) if kind == "l4" else replace(host(f"h{number}", gpu("41", A100)), free_vcpus=amount)
        for number, (kind, amount) in enumerate(kinds)
    ]
    (found,) = capacity([asks(profile)], hosts)
    assert found.fits_now == sum(_filled(_on(asks(profile), one.host_id), hosts) for one in hosts)


def _on(request: Request, host: str) -> Request:
    return replace(request, needs=on_host(request.needs, host))


def _filled(request: Request, hosts: list[HostView]) -> int:
    engine, placed = PlacementEngine(hosts), 0
    while (plan := engine.plan(one := replace(request, vm_id=f"vm {placed}"))) is not None:
        engine.take(one, plan)
        placed += 1
    return placed


def test_where_vcpus_run_out_first_they_are_what_counts() -> None:
    hosts = [replace(host(f"h{number}", gpu("41", A100)), free_vcpus=5) for number in range(3)]
    request = replace(asks("1g.5gb"), vcpus=2)
    assert capacity([request], hosts) == (CapacityRow("1g.5gb", 6),)


def test_what_is_known_of_a_kind_of_hosts_is_told_again_and_a_change_is_another_kind() -> None:
    known, request = KnownRooms(), asks("3g.20gb")
    hosts = [host(f"h{number}", gpu("41", A100)) for number in range(3)]
    for free, fit in ((64, 6), (1, 5), (64, 6)):
        hosts[1] = replace(hosts[1], free_vcpus=free)
        each = OneOfEach(kinds_of((known.number_of(one), one) for one in hosts), known)
        assert each.room(replace(request, vcpus=1)) == fit


def test_hosts_that_cannot_give_their_gpus_out_as_a_whole_are_not_like_those_that_can() -> None:
    hosts = [host("h0", gpu("41", A100)), host("h1", replace(gpu("41", A100), reason_not_whole="no IOMMU"))]
    for order in (hosts, hosts[::-1]):
        assert capacity([asks("gpu:1")], order)[0].fits_now == 1


def test_the_table_reads_as_agreed() -> None:
    wanted = [asks(name) for name in ("NVIDIA L4-4Q", "NVIDIA L4-8Q", "NVIDIA L4-24Q", "1g.5gb", "gpu:1")]
    assert_golden("capacity", drawn_capacity(capacity(wanted, (*TWO_HALF_FULL, host("kvm3", gpu("41", A100))))))


def test_what_is_wrong_with_a_gpu_of_another_model_is_no_reason() -> None:
    mixed = host("h0", gpu("41", A100), replace(gpu("61", L4), reason_not_whole="its IOMMU group has others"))
    asked = replace(asks("gpu:2"), gpu_models=(A100.model,))
    refusal = place(asked, [mixed])
    assert isinstance(refusal, Refusal)
    assert "gpu.not_whole" not in {reason.code for reason in refusal.reasons}
    both = replace(asked, gpu_models=(A100.model, L4.model))
    broken = place(both, [mixed])
    assert isinstance(broken, Refusal)
    assert "gpu.not_whole" in {reason.code for reason in broken.reasons}


def test_a_gpu_with_faulty_links_is_given_out_by_itself_alone() -> None:
    gpus = [gpu(bus, A100) for bus in ("41", "61", "81")]
    whole = host("h0", *gpus)
    faulty = host("h1", replace(gpus[0], reason_alone="its links to other GPUs are faulty"), *gpus[1:])
    for shape, before, after in (("gpu:1", 3, 3), ("gpu:2", 1, 1), ("gpu:3", 1, 0)):
        assert capacity([asks(shape)], [whole])[0].fits_now == before
        assert capacity([asks(shape)], [faulty])[0].fits_now == after
    pair = place(asks("gpu:2"), [faulty])
    assert isinstance(pair, Placement)
    assert gpus[0].gpu_id not in pair.gpu_ids
    refusal = place(asks("gpu:3"), [faulty])
    assert isinstance(refusal, Refusal)
    assert "gpu.alone" in {reason.code for reason in refusal.reasons}
    assert OneOfEach.among([whole, faulty]).room(asks("gpu:3")) == 1
