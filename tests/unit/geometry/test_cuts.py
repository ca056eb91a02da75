# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.catalogue.catalogue import shipped
from orchestrator.catalogue.geometries import ALL_KINDS, catalogue_geometry
from orchestrator.core.geometry.board import AnySetBoard, fabric_board
from orchestrator.core.geometry.build import EqualSizeCut
from orchestrator.core.geometry.cut import Cut, IllegalLayout, Taken
from orchestrator.core.geometry.geometry import Geometry
from orchestrator.core.geometry.mask_cut import MaskCut
from orchestrator.core.geometry.nested import NestedCut, instances_of

HGX = tuple(p.module_ids for p in shipped().partitions_of("HGX H100"))


def geometry(model: str) -> Geometry:
    return catalogue_geometry(shipped(), model, ALL_KINDS)


def cut_of(model: str, name: str) -> Cut:
    cut = geometry(model).cut(name)
    assert cut is not None
    return cut


def reachable(cut: Cut, shapes: tuple[str, ...]) -> set[object]:
    found, open_states = {cut.empty}, [cut.empty]
    while open_states:
        state = open_states.pop()
        for shape in shapes:
            for choice in cut.choices(state, shape):
                if choice.after not in found:
                    found.add(choice.after)
                    open_states.append(choice.after)
    return found


@pytest.mark.parametrize("model", ["A100 PCIe 40GB", "A100 SXM4 80GB", "H100 SXM5 80GB", "H200 SXM5 141GB"])
def test_seven_slice_gpus_reach_191_states_besides_the_empty_one(model: str) -> None:
    cut = cut_of(model, "mig")
    plain = tuple(shape for shape in cut.shapes if "+" not in shape and "-" not in shape)
    assert len(plain) == 6
    assert len(reachable(cut, plain) - {cut.empty}) == 191


def test_two_3g_instances_leave_no_room_for_a_1g() -> None:
    cut = cut_of("A100 PCIe 40GB", "mig")
    state = cut.classify([Taken("3g.20gb", 0, 4), Taken("3g.20gb", 4, 4)])
    assert cut.choices(state, "1g.5gb") == ()
    assert cut.free(state) == 0


def test_a_profile_that_needs_the_media_engines_fits_once() -> None:
    cut = cut_of("A100 PCIe 40GB", "mig")
    state = cut.classify([Taken("1g.5gb+me", 3, 1)])
    assert cut.choices(state, "1g.5gb+me") == ()
    assert len(cut.choices(state, "1g.5gb")) == 6


@pytest.mark.parametrize(
    ("model", "there", "refused", "left"),
    [
        ("RTX PRO 6000 Blackwell Server Edition", "1g.24gb+me.all", ("1g.24gb", "1g.24gb+me", "2g.48gb"), "1g.24gb-me"),
        ("RTX PRO 6000 Blackwell Server Edition", "2g.48gb+me.all", ("1g.24gb", "2g.48gb+gfx"), "2g.48gb-me"),
        ("RTX PRO 6000 Blackwell Server Edition", "1g.24gb+me", ("1g.24gb+me.all", "1g.24gb+me"), "2g.48gb"),
        ("RTX PRO 6000 Blackwell Server Edition", "1g.24gb", ("1g.24gb+me.all", "2g.48gb+me.all"), "1g.24gb+me"),
        ("A30", "2g.12gb+me", ("1g.6gb+me", "2g.12gb+me"), "2g.12gb"),
        ("H100 SXM5 80GB", "1g.10gb+me", ("1g.10gb+me",), "3g.40gb"),
    ],
)
def test_a_gpu_has_its_media_engines_once(model: str, there: str, refused: tuple[str, ...], left: str) -> None:
    cut = cut_of(model, "mig")
    state = cut.choices(cut.empty, there)[0].after
    assert [shape for shape in refused if cut.choices(state, shape)] == []
    assert cut.choices(state, left)
    assert [cut.usable(state, shape) for shape in refused] == [0] * len(refused)


@pytest.mark.parametrize("model", ["A100 SXM4 80GB", "A30", "H100 SXM5 80GB", "RTX PRO 6000 Blackwell Server Edition"])
def test_no_packing_takes_more_engines_than_the_gpu_has(model: str) -> None:
    catalogue = shipped()
    rows = {row.name: row for row in catalogue.profiles_of_model(catalogue.model(model) or pytest.fail(model))}
    cut = instances_of(cut_of(model, "mig"))
    assert isinstance(cut, MaskCut)
    for engine in ("decoders", "encoders", "jpeg_engines", "optical_flow_engines"):
        taken = {name: getattr(row, engine) or 0 for name, row in rows.items()}
        limit = max(taken[name] * row.max_instances for name, row in rows.items())
        most = {cut.empty: 0}
        for _ in range(cut.slots):
            found = {
                choice.after: max(most.get(choice.after, 0), count + taken[shape])
                for state, count in most.items() for shape in cut.shapes for choice in cut.choices(state, shape)
            }  # fmt: skip
            most |= found
        assert max(most.values()) <= limit, engine


@pytest.mark.fault("F73")
@pytest.mark.parametrize(
    "taken",
    [
        [Taken("1g.5gb", 7, 1)],
        [Taken("2g.10gb", 1, 2)],
        [Taken("3g.20gb", 0, 4), Taken("1g.5gb", 3, 1)],
        [Taken("unheard-of", 6, 4)],
    ],
)
def test_layouts_that_the_table_does_not_allow_are_refused(taken: list[Taken]) -> None:
    with pytest.raises(IllegalLayout):
        cut_of("A100 PCIe 40GB", "mig").classify(taken)


def test_mixed_sizes_of_an_l4_lie_only_at_their_placement_ids() -> None:
    cut = cut_of("L4", "mixed")
    starts = {cut.size(shape): [c.start for c in cut.choices(cut.empty, shape)] for shape in cut.shapes}
    assert starts[4] == [0, 8, 12, 20]
    assert starts[6] == [0, 6, 12, 18]
    assert starts[8] == [0, 16]
    assert starts[12] == [0, 12]
    assert starts[24] == [0]


def test_equal_sizes_take_the_lowest_free_slot_and_no_more_than_the_maximum() -> None:
    cut = EqualSizeCut(4096, 3)
    taken = [Taken("4096", 0, 1), Taken("4096", 2, 1)]
    (choice,) = cut.choices(cut.classify(taken), "4096")
    assert cut.real_start(taken, choice) == 1
    assert cut.choices(choice.after, "4096") == ()
    with pytest.raises(IllegalLayout):
        cut.classify([Taken("4096", 3, 1)])


def test_a_gpu_instance_of_blackwell_holds_several_vgpus_of_one_size() -> None:
    cut = cut_of("RTX PRO 6000 Blackwell Server Edition", "mig")
    assert isinstance(cut, NestedCut)
    shape = next(name for name, inside in cut.inside.items() if inside.per_instance > 1)
    inside = cut.inside[shape]
    state = cut.empty
    taken: list[Taken] = []
    for expected in range(inside.per_instance):
        choice = cut.choices(state, shape)[0]
        start = cut.real_start(taken, choice)
        assert start == expected * inside.size
        taken.append(Taken(shape, start, inside.size))
        state = choice.after
        assert cut.classify(taken) == state
    assert cut.choices(state, shape)[0].start >= inside.size * inside.per_instance
    other = next(n for n, i in cut.inside.items() if i.profile == inside.profile and n != shape)
    with pytest.raises(IllegalLayout):
        cut.classify([taken[0], Taken(other, inside.size, cut.size(other))])


@pytest.mark.fault("F94")
def test_fabric_partitions_follow_module_ids_and_not_pci_order() -> None:
    modules = [5, 1, 7, 3, 6, 2, 8, 4]
    cut = fabric_board(HGX, modules, 81920)
    pairs = {frozenset(modules[i] for i in range(8) if c.mask >> i & 1) for c in cut.choices(0, "gpu:2")}
    assert pairs == {frozenset(p) for p in HGX if len(p) == 2}


@pytest.mark.fault("F93")
def test_six_free_gpus_need_not_hold_a_partition_of_four() -> None:
    cut = fabric_board(HGX, range(1, 9), 81920)
    state = 1 << 0 | 1 << 4
    assert cut.free(state) == 6
    assert cut.choices(state, "gpu:4") == ()


def test_without_a_fabric_gpus_of_one_numa_node_go_together() -> None:
    cut = AnySetBoard([0, 1, 0, 1, 0, 1, 0, 1], 49152)
    (pair,) = cut.choices(1 << 0, "gpu:2")
    assert pair.mask in {1 << 2 | 1 << 4, 1 << 2 | 1 << 6, 1 << 4 | 1 << 6}
    (five,) = cut.choices(0, "gpu:5")
    assert bin(five.mask).count("1") == 5


ALL_CUTS = [
    (model.name, cut.name)
    for model in shipped().gpu_models
    for cut in geometry(model.name).cuts
    if cut.kind != "time_sliced" or cut.slots < 6
]


@given(st.sampled_from(ALL_CUTS), st.lists(st.tuples(st.integers(0, 999), st.integers(0, 999)), max_size=40))
def test_any_sequence_of_choices_gives_a_layout_that_classifies_to_the_same_state(
    which: tuple[str, str], picks: list[tuple[int, int]]
) -> None:
    cut = cut_of(*which)
    state = cut.empty
    taken: list[Taken] = []
    for shape_pick, choice_pick in picks:
        shape = cut.shapes[shape_pick % len(cut.shapes)]
        choices = cut.choices(state, shape)
        assert cut.usable(state, shape) <= cut.free(state)
        assert (cut.usable(state, shape) > 0) == bool(choices)
        if choices:
            choice = choices[choice_pick % len(choices)]
            start = cut.real_start(taken, choice)
            taken.append(Taken(shape, start, choice.size))
            state = choice.after
            assert cut.classify(taken) == state
    slots = [slot for place in taken for slot in place.slots]
    assert len(slots) == len(set(slots)) == cut.slots - cut.free(state)
