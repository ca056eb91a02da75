# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.geometry.board import AnySetBoard, fabric_board
from orchestrator.core.geometry.build import EqualSizeCut
from orchestrator.core.geometry.cut import Cut
from tests.bench.placement.minimum import fits_seven_slice, minimum_bins
from tests.unit.geometry.test_cuts import HGX, cut_of

Counts = tuple[int, ...]


@cache
def one_bin(model: str, cut_name: str, shapes: tuple[str, ...]) -> frozenset[Counts]:
    """Every count vector that one GPU can hold, by trying all layouts."""
    cut = cut_of(model, cut_name)
    return frozenset(_vectors(cut, shapes))


def _vectors(cut: Cut, shapes: tuple[str, ...]) -> set[Counts]:
    start = (cut.empty, (0,) * len(shapes))
    seen, waiting = {start}, [start]
    while waiting:
        state, counts = waiting.pop()
        for i, shape in enumerate(shapes):
            for choice in cut.choices(state, shape):
                after = (choice.after, (*counts[:i], counts[i] + 1, *counts[i + 1 :]))
                if after not in seen:
                    seen.add(after)
                    waiting.append(after)
    return {counts for _, counts in seen}


@cache
def brute_minimum(vectors: frozenset[Counts], wanted: Counts) -> int:
    if not any(wanted):
        return 0
    useful = {tuple(min(have, want) for have, want in zip(vector, wanted, strict=True)) for vector in vectors}
    best = {v for v in useful if any(v) and not any(v != o and all(map(int.__le__, v, o)) for o in useful)}
    first = next(i for i, count in enumerate(wanted) if count)
    rests = {tuple(w - v for w, v in zip(wanted, vector, strict=True)) for vector in best if vector[first]}
    return 1 + min(brute_minimum(vectors, rest) for rest in rests)


SEVEN = ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")


@given(st.tuples(*(st.integers(0, most) for most in (7, 4, 4, 3, 2, 1))))
def test_the_closed_form_for_seven_slices_agrees_with_trying_everything(counts: Counts) -> None:
    cut = cut_of("H100 SXM5 80GB", "mig")
    found = minimum_bins(cut, dict(zip(SEVEN, counts, strict=True)))
    assert found.exact
    assert found.bins == brute_minimum(one_bin("H100 SXM5 80GB", "mig", SEVEN), counts)


@given(st.tuples(*(st.integers(0, most) for most in (6, 6, 4, 3, 1))))
def test_the_closed_form_for_mixed_sizes_of_24_gb_agrees_with_trying_everything(counts: Counts) -> None:
    cut = cut_of("L4", "mixed")
    shapes = tuple(next(s for s in cut.shapes if cut.size(s) == size) for size in (4, 6, 8, 12, 24))
    found = minimum_bins(cut, dict(zip(shapes, counts, strict=True)))
    assert found.exact
    assert found.bins == brute_minimum(one_bin("L4", "mixed", shapes), counts)


@given(st.tuples(*(st.integers(0, 9) for _ in range(3))))
def test_the_closed_form_for_a30_agrees_with_trying_everything(counts: Counts) -> None:
    cut = cut_of("A30", "mig")
    shapes = ("1g.6gb", "2g.12gb", "4g.24gb")
    found = minimum_bins(cut, dict(zip(shapes, counts, strict=True)))
    assert found.exact
    assert found.bins == brute_minimum(one_bin("A30", "mig", shapes), counts)


@given(st.tuples(*(st.integers(0, most) for most in (9, 5, 3, 2))))
def test_the_closed_form_for_fabric_partitions_agrees_with_trying_everything(counts: Counts) -> None:
    cut = fabric_board(HGX, range(1, 9), 81920)
    shapes = ("gpu:1", "gpu:2", "gpu:4", "gpu:8")
    found = minimum_bins(cut, dict(zip(shapes, counts, strict=True)))
    assert found.exact
    assert found.bins == brute_minimum(frozenset(_vectors(cut, shapes)), counts)


@given(st.lists(st.tuples(st.sampled_from(["mixed", "mig"]), st.integers(0, 8)), min_size=1, max_size=4))
def test_bounds_never_exceed_what_first_fit_needs(wanted: list[tuple[str, int]]) -> None:
    cut = cut_of("L40S", "mixed")
    counts = {cut.shapes[i % len(cut.shapes)]: n for i, (_, n) in enumerate(wanted)}
    bins = [cut.empty]
    for shape, count in counts.items():
        for _ in range(count):
            at = next((i for i, state in enumerate(bins) if cut.choices(state, shape)), None)
            if at is None:
                bins.append(cut.empty)
                at = len(bins) - 1
            bins[at] = cut.choices(bins[at], shape)[0].after
    assert minimum_bins(cut, counts).bins <= len(bins)


@pytest.mark.parametrize("count, slots, bins", [(0, 4, 0), (1, 4, 1), (4, 4, 1), (5, 4, 2)])
def test_equal_sizes_need_their_count_over_the_slots(count: int, slots: int, bins: int) -> None:
    cut = EqualSizeCut(4096, slots)
    assert minimum_bins(cut, {"4096": count}) == minimum_bins(cut, {"4096": count})
    assert minimum_bins(cut, {"4096": count}).bins == bins


def test_sets_of_three_gpus_have_only_a_bound() -> None:
    cut = AnySetBoard([0] * 8, 81920)
    assert minimum_bins(cut, {"gpu:2": 8}).exact
    assert not minimum_bins(cut, {"gpu:3": 5}).exact


def test_more_gpus_never_hurt_and_more_vms_never_help() -> None:
    for one, double, two, three, four, seven in itertools.product(range(3), repeat=6):
        fits = [fits_seven_slice((one, double, two, three, four, seven), gpus) for gpus in range(8)]
        assert fits == sorted(fits)
