# SPDX-License-Identifier: Apache-2.0
"""Several shapes on one empty GPU."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.core.geometry.cut import Cut, State


def pack(cut: Cut, shapes: Sequence[str]) -> tuple[tuple[str, int], ...] | None:
    """(shape, start) of each, by start; None: they do not fit together. Every shape must be one of the cut's.

    The largest are placed first, each as high as it can lie, which leaves the lower places to what has more of them;
    where that leads nowhere, the next place is tried.
    """
    wanted = sorted(shapes, key=lambda shape: (-cut.size(shape), shape))
    found = _placed(cut, cut.empty, wanted)
    return None if found is None else tuple(sorted(found, key=lambda one: one[1]))


def _placed(cut: Cut, state: State, left: Sequence[str]) -> list[tuple[str, int]] | None:
    if not left:
        return []
    if sum(cut.size(shape) for shape in left) > cut.free(state):
        return None
    for choice in reversed(cut.choices(state, left[0])):
        rest = _placed(cut, choice.after, left[1:])
        if rest is not None:
            return [(left[0], choice.start), *rest]
    return None
