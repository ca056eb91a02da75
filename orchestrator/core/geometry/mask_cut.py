# SPDX-License-Identifier: Apache-2.0
"""Cuts whose state is the set of taken slots and engines: MIG, mixed sizes, fabric partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from orchestrator.core.geometry.cut import Choice, Cut, CutKind, IllegalLayout, State, Taken, bits

Engines = Mapping[str, int]
"""How many of each kind of engine (``nvdec``, ``ofa``); of a shape: what one instance takes."""
_COUNT_BITS = 8
"""Of an engine's counter in a state: counts below 128, and a bit that says that there are not enough."""
_COUNT_MAX = 1 << (_COUNT_BITS - 1)


@dataclass(frozen=True, slots=True)
class Places:
    """Where one shape may lie: slot masks by rising start. ``engines``: (kind, count) that an instance takes."""

    size: int
    masks: tuple[int, ...]
    engines: tuple[tuple[str, int], ...] = ()


def intervals(starts: Iterable[int], size: int, engines: Engines | None = None) -> Places:
    """Places that are runs of ``size`` slots from each of ``starts``."""
    taken = tuple(sorted((kind, count) for kind, count in (engines or {}).items() if count))
    return Places(size, tuple(((1 << size) - 1) << start for start in sorted(starts)), taken)


class MaskCut(Cut):
    """Slots that are not interchangeable: a table says which sets of them a shape may take.

    A state is the mask of taken slots and, above it, a counter of each kind of engine that can run out before the slots
    do. A counter begins so high that its top bit is set as soon as more are taken than there are.
    """

    def __init__(
        self,
        name: str,
        kind: CutKind,
        slots: int,
        slot_mib: int,
        places: Mapping[str, Places],
        engines: Engines | None = None,
    ) -> None:
        """``engines``: what the GPU has of each kind that an instance takes."""
        self.name, self.kind, self.slots, self.slot_mib = name, kind, slots, slot_mib
        self.engines = _that_run_out(places, _different(places, engines or {}))
        self._slots_mask = (1 << slots) - 1
        self.places = {shape: replace(p, engines=tuple(self._counted(p))) for shape, p in places.items()}
        self.shapes = tuple(self.places)
        shift = {kind: slots + number * _COUNT_BITS for number, kind in enumerate(sorted(self.engines))}
        full = _COUNT_MAX
        self.empty: State = sum((full - 1 - count) << shift[kind] for kind, count in self.engines.items())
        self._short = sum(full << at for at in shift.values())
        self._taken = {
            shape: sum(count << shift[kind] for kind, count in p.engines) for shape, p in self.places.items()
        }
        rows = sorted((n, p.size, p.masks, p.engines) for n, p in self.places.items())
        self.key = (name, kind, slots, slot_mib, tuple(rows), tuple(sorted(self.engines.items())))
        self._at = {(name, _lowest(mask)): mask for name, p in self.places.items() for mask in p.masks}

    def _counted(self, places: Places) -> Iterator[tuple[str, int]]:
        """Engines that count: beside an instance on all slots there is none that could miss them."""
        if places.masks != (self._slots_mask,):
            yield from (taken for taken in places.engines if taken[0] in self.engines)

    def has_engines(self, shapes: Iterable[str]) -> bool:
        """Whether the GPU has the engines of these instances together."""
        return not (cast("int", self.empty) + sum(self._taken[shape] for shape in shapes)) & self._short

    def size(self, shape: str) -> int:
        """Slots of one instance."""
        return self.places[shape].size

    def classify(self, taken: Iterable[Taken]) -> State:
        """The taken slots and engines. A shape that the table lacks takes its slots and nothing else."""
        state = cast("int", self.empty)
        for place in taken:
            mask = self._mask_at(place)
            if state & mask:
                raise IllegalLayout(f"{place.shape} at slot {place.start} overlaps another on {self.name}")
            state = (state | mask) + self._taken.get(place.shape, 0)
            if state & self._short:
                raise IllegalLayout(f"{place.shape} at slot {place.start} of {self.name} takes engines of another")
        return state

    def _mask_at(self, place: Taken) -> int:
        known = self._at.get((place.shape, place.start))
        if known is not None:
            return known
        if place.start < 0 or place.start + place.size > self.slots or place.shape in self.places:
            raise IllegalLayout(f"{place.shape} may not start at slot {place.start} of {self.name}")
        return ((1 << place.size) - 1) << place.start

    def _free_masks(self, state: int, shape: str) -> Iterator[int]:
        if shape in self.places and not (state + self._taken[shape]) & self._short:
            yield from (mask for mask in self.places[shape].masks if not state & mask)

    def choices(self, state: State, shape: str) -> tuple[Choice, ...]:
        """A choice per free legal place."""
        state = cast("int", state)
        size, taken = self.places[shape].size, self._taken[shape]
        return tuple(
            Choice(_lowest(mask), size, (state | mask) + taken, mask) for mask in self._free_masks(state, shape)
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
        cover = 0
        for mask in self._free_masks(cast("int", state), shape):
            cover |= mask
        return bits(cover)


def _different(places: Mapping[str, Places], engines: Engines) -> dict[str, int]:
    """One kind of those that every shape takes alike."""
    first: dict[object, str] = {}
    for kind, count in engines.items():
        first.setdefault((count, tuple(dict(p.engines).get(kind, 0) for p in places.values())), kind)
    return {kind: engines[kind] for kind in first.values()}


def _that_run_out(places: Mapping[str, Places], engines: Engines) -> dict[str, int]:
    """Of the engines those of which instances that fit by slots, and by the engines found before, can take too many."""
    found: dict[str, int] = {}
    shapes = Counter(kind for p in places.values() for kind, _ in p.engines)
    for kind, count in sorted(engines.items(), key=lambda engine: (engine[1], -shapes[engine[0]], engine[0])):
        if count < _COUNT_MAX and _most(places, kind, [other for other in found if found[other] == 1]) > count:
            found[kind] = count
    return found


def _most(places: Mapping[str, Places], kind: str, single: Sequence[str]) -> int:
    """Most engines of the kind that instances side by side take, of each kind in ``single`` one at most."""
    slots = max((mask.bit_length() for p in places.values() for mask in p.masks), default=0)
    most: list[dict[int, int]] = [{0: 0}, *({} for _ in range(slots))]
    """By the first slot that is free: bits of the single engines that are taken → most engines of the kind."""
    lying = [(p, mask) for p in places.values() for mask in p.masks]
    for free in range(slots):
        _keep(most[free + 1], most[free])
        for p, mask in lying:
            if _lowest(mask) == free:
                taken = dict(p.engines)
                held = sum(1 << number for number, other in enumerate(single) if other in taken)
                after = {b | held: n + taken.get(kind, 0) for b, n in most[free].items() if not b & held}
                _keep(most[mask.bit_length()], after)
    return max(most[slots].values())


def _keep(most: dict[int, int], found: Mapping[int, int]) -> None:
    for bits_taken, count in found.items():
        most[bits_taken] = max(most.get(bits_taken, 0), count)


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1
