# SPDX-License-Identifier: Apache-2.0
"""Packing a known set of MIG profiles into the fewest GPUs of the 7-slice family, by construction."""

from __future__ import annotations

from collections.abc import Iterator

from tests.bench.placement.minimum import fewest_seven_slice

Layout = list[tuple[int, int]]
"""(kind, start slot) of each instance on one GPU; kinds count 1g, 1g double memory, 2g, 3g, 4g, 7g from 0."""

ONE, DOUBLE, TWO, THREE, FOUR, SEVEN = range(6)


def pack_seven_slice(counts: tuple[int, int, int, int, int, int]) -> list[Layout]:
    """One layout per GPU, as many as ``fewest_seven_slice`` says.

    Half GPUs first (4g below, 3g above, more 3g below), then pairs of slots, where the pair with the memory-only
    slot 7 takes a double-memory 1g or one 1g; single slots last.
    """
    gpus: list[Layout] = [[] for _ in range(fewest_seven_slice(counts))]
    seven = counts[SEVEN]
    for layout in gpus[:seven]:
        layout.append((SEVEN, 0))
    opened = gpus[seven:]
    above = min(counts[THREE], len(opened))
    below = counts[FOUR] + counts[THREE] - above
    for number, layout in enumerate(opened):
        if number < below:
            layout.append((FOUR if number < counts[FOUR] else THREE, 0))
        if number < above:
            layout.append((THREE, 4))
    strong = [(layout, start) for layout in opened[below:] for start in (0, 2)]
    strong += [(layout, 4) for layout in opened[above:]]
    weak = opened[above:]
    in_weak = min(counts[DOUBLE], len(weak))
    for layout in weak[:in_weak]:
        layout.append((DOUBLE, 6))
    pairs = [DOUBLE] * (counts[DOUBLE] - in_weak) + [TWO] * counts[TWO]
    for kind, (layout, start) in zip(pairs, strong, strict=False):
        layout.append((kind, start))
    singles = _single_slots(strong[len(pairs) :], weak[in_weak:])
    for (layout, start), _ in zip(singles, range(counts[ONE]), strict=False):
        layout.append((ONE, start))
    return gpus


def _single_slots(strong: list[tuple[Layout, int]], weak: list[Layout]) -> Iterator[tuple[Layout, int]]:
    for layout, start in strong:
        yield layout, start
        yield layout, start + 1
    for layout in weak:
        yield layout, 6
