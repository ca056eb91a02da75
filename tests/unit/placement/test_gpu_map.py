# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.advice.gpu_map import gpu_map, own_gpus
from orchestrator.core.placement.engine import PlacementEngine
from orchestrator.core.placement.views import HostView
from tests.fakes.drawn import drawn_map
from tests.unit.placement.explain_cases import A100, H100, L4, L4_MIXED, asks, gpu, host, vm
from tests.unit.placement.golden_text import assert_golden

FLEET = (
    host(
        "kvm1",
        replace(gpu("41", A100, "mig", vm("train", "3g.20gb", 0, 4), vm("web", "1g.5gb", 5, tenant="birch")), numa=0),
        replace(gpu("c1", A100), numa=1),
    ),
    host(
        "kvm2",
        gpu("41", L4, "time_sliced:4096", *(vm(f"desk-{n}", "NVIDIA L4-4Q", n) for n in (0, 1, 4))),
        gpu("42", L4_MIXED, "mixed", vm("cad", "NVIDIA L4-12Q", 12, 12, tenant="birch"), vm("a", "NVIDIA L4-4Q", 0, 4)),
        replace(gpu("43", L4), usable=False, reason_unusable="quarantined after Xid 79"),
    ),
    replace(host("kvm3", gpu("1b", H100, "whole", vm("llm", "gpu:1", 0))), cordoned=True, reason="being drained"),
)


@pytest.mark.parametrize("width", (60, 200))
def test_the_map_is_drawn_as_agreed(width: int) -> None:
    assert_golden(f"gpu_map_{width}", drawn_map(gpu_map(FLEET), width))


@pytest.mark.parametrize("width", (20, 33, 60, 80, 200))
def test_no_line_is_longer_than_the_terminal(width: int) -> None:
    assert max(map(len, drawn_map(gpu_map(FLEET), width).splitlines())) <= width


def test_a_tenant_sees_the_gpus_that_its_vms_are_on_and_nothing_of_others() -> None:
    rows = own_gpus(gpu_map(FLEET), {"birch"})
    text = drawn_map(rows, 120)
    assert {cell.label for row in rows for cell in row.cells} == {"birch/web", "birch/cad", "(not yours)"}
    assert not [word for word in ("kvm", "41", "42", "acme", "free)") if word in text.replace("free slot", "")]
    assert_golden("gpu_map_told", text)


@given(st.permutations(range(6)), st.integers(0, 5), st.sampled_from(("other", "renamed")))
def test_where_others_vms_lie_and_how_many_there_are_changes_nothing_in_a_tenants_map(
    slots: list[int], others: int, name: str
) -> None:
    own, rest = slots[0], slots[1 : 1 + others]
    held = [vm("mine", "NVIDIA L4-4Q", own), *(vm(f"{name}-{n}", "NVIDIA L4-4Q", n, tenant="birch") for n in rest)]
    alone = [vm("mine", "NVIDIA L4-4Q", 0)]
    maps = [gpu_map([host(f"kvm{len(vms)}", gpu("41", L4, "time_sliced:4096", *vms))]) for vms in (held, alone)]
    assert own_gpus(maps[0], {"acme"}) == own_gpus(maps[1], {"acme"})


def test_vms_go_by_the_names_given() -> None:
    assert "acme/Training" in drawn_map(gpu_map(FLEET, names={"train": "Training"}), 80)


def test_a_fleet_without_gpus_says_so() -> None:
    assert drawn_map(gpu_map([host("kvm1")]), 80) == "no GPUs\n"


@given(st.lists(st.sampled_from(["1g.5gb", "2g.10gb", "3g.20gb"]), max_size=7))
def test_cells_cover_every_slot_once(profiles: list[str]) -> None:
    view = _filled(host("kvm1", gpu("41", A100)), profiles)
    for row in gpu_map([view]):
        covered = [slot for cell in row.cells for slot in range(cell.start, cell.start + cell.size)]
        assert covered == list(range(row.slots))


def _filled(view: HostView, profiles: list[str]) -> HostView:
    engine = PlacementEngine([view])
    held = []
    for number, profile in enumerate(profiles):
        request = replace(asks(profile), vm_id=f"vm{number}")
        plan = engine.plan(request)
        if plan is not None:
            part = engine.take(request, plan).parts[0]
            held.append(vm(request.vm_id, profile, part.start, part.size))
    return replace(view, gpus=(replace(view.gpus[0], cut="mig" if held else None, occupied=tuple(held)),))
