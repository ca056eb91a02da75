# SPDX-License-Identifier: Apache-2.0
"""How many GPUs a set of VMs needs at least, if all of them may be rearranged freely.

Exact, in closed form, for the 7-slice MIG family, equal sizes, aligned halving tables (A30, RTX PRO 6000,
fabric partitions) and the mixed sizes of 24 GB GPUs; elsewhere a lower bound, labelled as such.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from orchestrator.core.geometry.board import AnySetBoard
from orchestrator.core.geometry.build import EqualSizeCut
from orchestrator.core.geometry.cut import Cut
from orchestrator.core.geometry.mask_cut import MaskCut, intervals

_SEVEN = {
    "1g": intervals(range(7), 1).masks,
    "1g double": intervals((0, 2, 4, 6), 2).masks,
    "2g": intervals((0, 2, 4), 2).masks,
    "3g": intervals((0, 4), 4).masks,
    "4g": intervals((0,), 4).masks,
    "7g": intervals((0,), 8).masks,
}
_HALVES = {
    4: (0, 8, 12, 20),
    6: (0, 6, 12, 18),
    8: (0, 16),
    12: (0, 12),
    24: (0,),
}
"""Placement ids of 4 to 24 GB on a 24 GB region: both halves mirror each other."""


@dataclass(frozen=True, slots=True)
class Minimum:
    """At least ``bins`` are needed; when ``exact``, that many are enough too."""

    bins: int
    exact: bool


def fits_seven_slice(counts: tuple[int, int, int, int, int, int], gpus: int) -> bool:
    """Whether counts of 1g, 1g double memory, 2g, 3g, 4g, 7g fit GPUs of the 7-slice family, freely arranged. O(1).

    Each GPU not given to a 7g has a lower half (slots 0-3) and an upper half (slots 4-6 and the memory slot 7).
    """
    one, double, two, three, four, seven = counts
    open_gpus = gpus - seven
    threes_below = max(0, three - open_gpus)
    lower = open_gpus - four - threes_below
    upper = open_gpus - three + threes_below
    if min(open_gpus, lower, upper) < 0:
        return False
    strong, weak = 2 * lower + upper, upper
    weak_doubles = min(double, weak)
    strong -= two + double - weak_doubles
    return strong >= 0 and one <= 2 * strong + weak - weak_doubles


def minimum_bins(cut: Cut, counts: Mapping[str, int]) -> Minimum:
    """The fewest GPUs (or hosts, for a board) for ``counts`` instances of each shape of one cut."""
    wanted = {shape: count for shape, count in counts.items() if count}
    if not wanted:
        return Minimum(0, exact=True)
    if isinstance(cut, EqualSizeCut):
        return Minimum(-(-sum(wanted.values()) // cut.slots), exact=True)
    slots = sum(cut.size(shape) * count for shape, count in wanted.items())
    by_size = -(-slots // cut.slots)
    if isinstance(cut, AnySetBoard):
        aligned = all(cut.slots % cut.size(shape) == 0 and _is_power_of_two(cut.size(shape)) for shape in wanted)
        return Minimum(by_size, exact=aligned)
    if isinstance(cut, MaskCut):
        for rule in (_seven_slice, _halves, _aligned):
            bins = rule(cut, wanted)
            if bins is not None:
                return Minimum(bins, exact=True)
    alone = max(-(-count // _most_alone(cut, shape)) for shape, count in wanted.items())
    return Minimum(max(by_size, alone), exact=False)


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0


def seven_slice_kind(cut: Cut, shape: str) -> int | None:
    """Position of the shape among 1g, 1g double memory, 2g, 3g, 4g, 7g; None: not of the 7-slice family."""
    if not isinstance(cut, MaskCut) or cut.slots != 8:
        return None
    places = cut.places[shape]
    kinds = [number for number, masks in enumerate(_SEVEN.values()) if masks == places.masks]
    return kinds[0] if kinds and not _may_lack_engines(cut, shape) else None


def fewest_seven_slice(counts: tuple[int, int, int, int, int, int]) -> int:
    """The fewest GPUs that hold these counts of 1g, 1g double memory, 2g, 3g, 4g, 7g."""
    low, high = 0, sum(counts)
    while low < high:
        middle = (low + high) // 2
        if fits_seven_slice(counts, middle):
            high = middle
        else:
            low = middle + 1
    return low


def _seven_slice(cut: MaskCut, wanted: Mapping[str, int]) -> int | None:
    counts = [0] * len(_SEVEN)
    for shape, count in wanted.items():
        kind = seven_slice_kind(cut, shape)
        if kind is None:
            return None
        counts[kind] += count
    one, double, two, three, four, seven = counts
    return fewest_seven_slice((one, double, two, three, four, seven))


def _halves(cut: MaskCut, wanted: Mapping[str, int]) -> int | None:
    """A half holds one 12, an 8 with a 4, or any two of 4 and 6."""
    counts = dict.fromkeys(_HALVES, 0)
    for shape, count in wanted.items():
        size = cut.size(shape)
        if cut.slots != 24 or size not in _HALVES or cut.places[shape].masks != intervals(_HALVES[size], size).masks:
            return None
        counts[size] += count
    pairs = counts[6] + max(0, counts[4] - counts[8])
    halves = counts[12] + counts[8] + -(-pairs // 2)
    return counts[24] + -(-halves // 2)


def _aligned(cut: MaskCut, wanted: Mapping[str, int]) -> int | None:
    """Places that tile the bin and nest in each other pack without loss, largest first."""
    sizes = sorted({cut.size(shape) for shape in wanted})
    tiles = all(
        sum(cut.places[shape].masks) == (1 << cut.slots) - 1 and not _may_lack_engines(cut, shape) for shape in wanted
    )
    masks = [mask for shape in wanted for mask in cut.places[shape].masks]
    nested = all(a & b in {0, a, b} for a in masks for b in masks)
    if not (tiles and nested and all(big % small == 0 for small, big in pairwise(sizes))):
        return None
    return -(-sum(cut.size(shape) * count for shape, count in wanted.items()) // cut.slots)


def _most_alone(cut: Cut, shape: str) -> int:
    """Most instances of one shape in an empty bin, not more than really fit one by one."""
    by_slots = max(1, cut.usable(cut.empty, shape) // cut.size(shape))
    return min(by_slots, _most_by_engines(cut, shape)) if isinstance(cut, MaskCut) else by_slots


def _may_lack_engines(cut: MaskCut, shape: str) -> bool:
    """Whether instances of the shape take more of an engine than their share of the slots."""
    places = cut.places[shape]
    return any(count * cut.slots > cut.engines[kind] * places.size for kind, count in places.engines)


def _most_by_engines(cut: MaskCut, shape: str) -> int:
    """Most instances of the shape on an empty GPU, as far as engines count."""
    return min((cut.engines[kind] // count for kind, count in cut.places[shape].engines), default=cut.slots)
