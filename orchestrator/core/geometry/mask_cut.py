# SPDX-License-Identifier: Apache-2.0
"""Cuts whose state is the set of taken slots: MIG, mixed sizes, fabric partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from orchestrator.core.geometry.cut import Choice, Cut, CutKind, IllegalLayout, State, Taken, bits


@dataclass(frozen=True, slots=True)
class Places:
    """Where one shape may lie: slot masks by rising start. ``at_most`` 1: one instance per GPU only."""

    size: int
    masks: tuple[int, ...]
    at_most_one: str | None = None
    """Name of something a GPU has once (``media``): shapes that share a name exclude each other."""


def intervals(starts: Iterable[int], size: int, *, at_most_one: str | None = None) -> Places:
    """Places that are runs of ``size`` slots from each of ``starts``."""
    return Places(size, tuple(((1 << size) - 1) << start for start in sorted(starts)), at_most_one)


class MaskCut(Cut):
    """Slots that are not interchangeable: a table says which sets of them a shape may take."""

    def __init__(self, name: str, kind: CutKind, slots: int, slot_mib: int, places: Mapping[str, Places]) -> None:
        self.name, self.kind, self.slots, self.slot_mib = name, kind, slots, slot_mib
        self.places = dict(places)
        self.shapes = tuple(self.places)
        self.empty = 0
        rows = sorted((n, p.size, p.masks, p.at_most_one or "") for n, p in places.items())
        self.key = (name, kind, slots, slot_mib, tuple(rows))
        single = sorted({p.at_most_one for p in places.values() if p.at_most_one})
        self._slots_mask = (1 << slots) - 1
        self._masks = {
            name: tuple(mask | _single_bit(slots, single, p.at_most_one) for mask in p.masks)
            for name, p in self.places.items()
        }
        self._mask_from = {(name, _lowest(mask)): mask for name, masks in self._masks.items() for mask in masks}

    def size(self, shape: str) -> int:
        """Slots of one instance."""
        return self.places[shape].size

    def classify(self, taken: Iterable[Taken]) -> State:
        """The taken slots as a mask. A shape that the table lacks takes its slots and nothing else."""
        state = 0
        for place in taken:
            mask = self._mask_at(place)
            if state & mask:
                raise IllegalLayout(f"{place.shape} at slot {place.start} overlaps another on {self.name}")
            state |= mask
        return state

    def _mask_at(self, place: Taken) -> int:
        known = self._mask_from.get((place.shape, place.start))
        if known is not None:
            return known
        if place.start < 0 or place.start + place.size > self.slots or place.shape in self._masks:
            raise IllegalLayout(f"{place.shape} may not start at slot {place.start} of {self.name}")
        return ((1 << place.size) - 1) << place.start

    def choices(self, state: State, shape: str) -> tuple[Choice, ...]:
        """A choice per free legal place."""
        state = cast("int", state)
        size = self.places[shape].size
        return tuple(
            Choice(_lowest(mask), size, state | mask, mask & self._slots_mask)
            for mask in self._masks.get(shape, ())
            if not state & mask
        )

    def real_start(self, taken: Iterable[Taken], choice: Choice) -> int:
        """The choice's own start: no two slots are alike here."""
        return choice.start

    def free(self, state: State) -> int:
        """Slots not taken."""
        state = cast("int", state)
        return self.slots - bits(state & self._slots_mask)

    def usable(self, state: State, shape: str) -> int:
        """Slots covered by at least one free place of ``shape``."""
        state = cast("int", state)
        cover = 0
        for mask in self._masks.get(shape, ()):
            if not state & mask:
                cover |= mask
        return bits(cover & self._slots_mask)


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def _single_bit(slots: int, single: list[str], name: str | None) -> int:
    """Bits above the slots stand for what a GPU has once."""
    return 1 << (slots + single.index(name)) if name else 0
