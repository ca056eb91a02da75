# SPDX-License-Identifier: Apache-2.0
"""GPU instances that hold several time-sliced vGPUs (GB20x): one framebuffer size per instance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from orchestrator.core.geometry.cut import Choice, Cut, IllegalLayout, State, Taken
from orchestrator.core.geometry.mask_cut import MaskCut, Places, intervals

_Instance = tuple[int, str, str, int]
"""(first slot, GPU-instance profile, shape inside, how many of them)"""


@dataclass(frozen=True, slots=True)
class Inside:
    """A shape that lies in a GPU instance of ``profile``: ``per_instance`` of them, ``size`` slots each."""

    profile: str
    size: int
    per_instance: int


class NestedCut(Cut):
    """Slots are fine enough that every vGPU size is a whole number of them; a state lists the GPU instances."""

    def __init__(self, outer: MaskCut, scale: int, inside: Mapping[str, Inside]) -> None:
        """``outer``: the GPU instances alone, in memory slots of ``scale`` slots each."""
        self.name, self.kind = outer.name, "mig"
        self.slots, self.slot_mib = outer.slots * scale, outer.slot_mib // scale
        self.outer, self.scale, self.inside = outer, scale, dict(inside)
        self.instances = {name: _scaled(places, scale) for name, places in outer.places.items()}
        self.shapes = tuple(self.inside)
        self.empty = ()
        self.key = (
            outer.key, scale,
            tuple(sorted((n, i.profile, i.size, i.per_instance) for n, i in inside.items())),
        )  # fmt: skip

    def divides(self, one: str | None, other: str | None) -> bool:
        """Only vGPUs of one shape may come to lie in one GPU instance, and then share its engines."""
        return one != other or one is None or self.inside[one].per_instance == 1

    def instance_of(self, shape: str, start: int) -> tuple[str, int] | None:
        """By the place's own table."""
        first, profile = self._instance_of(Taken(shape, start, self.size(shape)))
        return profile, first // self.scale

    def starts_in(self, shape: str, first: int) -> tuple[int, ...]:
        """Places on the grid of the instance, lowest first."""
        inside = self.inside[shape]
        return tuple(first * self.scale + number * inside.size for number in range(inside.per_instance))

    def size(self, shape: str) -> int:
        """Slots of one vGPU."""
        return self.inside[shape].size

    def classify(self, taken: Iterable[Taken]) -> State:
        """GPU instances by start; each vGPU must lie on the grid of the instance around it."""
        instances: dict[int, _Instance] = {}
        for place in taken:
            start, profile = self._instance_of(place)
            count = instances[start][3] if start in instances else 0
            if start in instances and instances[start][1:3] != (profile, place.shape):
                raise IllegalLayout(f"the GPU instance at slot {start} of {self.name} holds another size")
            instances[start] = (start, profile, place.shape, count + 1)
        state = tuple(sorted(instances.values()))
        if bin(self._mask(state)).count("1") != sum(self.instances[i[1]].size for i in state):
            raise IllegalLayout(f"GPU instances of {self.name} overlap")
        if not self.outer.has_engines(profile for _, profile, _, _ in state):
            raise IllegalLayout(f"GPU instances of {self.name} take each other's engines")
        return state

    def _instance_of(self, place: Taken) -> tuple[int, str]:
        inside = self.inside.get(place.shape)
        if inside is None:
            raise IllegalLayout(f"{place.shape} is not a shape of {self.name}")
        for mask in self.instances[inside.profile].masks:
            first = _lowest(mask)
            index, rest = divmod(place.start - first, inside.size)
            if rest == 0 and 0 <= index < inside.per_instance:
                return first, inside.profile
        raise IllegalLayout(f"{place.shape} may not start at slot {place.start} of {self.name}")

    def _mask(self, state: tuple[_Instance, ...]) -> int:
        mask = 0
        for start, profile, _, _ in state:
            mask |= ((1 << self.instances[profile].size) - 1) << start
        return mask

    def choices(self, state: State, shape: str) -> tuple[Choice, ...]:
        """Instances of its size with room first, then every place for a new instance."""
        here = cast("tuple[_Instance, ...]", state)
        inside = self.inside[shape]
        choices = [
            Choice(item[0], inside.size, _replaced(here, item, item[3] + 1))
            for item in here
            if item[1:3] == (inside.profile, shape) and item[3] < inside.per_instance
        ]
        for place in self._new_places(here, inside.profile):
            new = (_lowest(place), inside.profile, shape, 1)
            choices.append(Choice(new[0], inside.size, tuple(sorted((*here, new)))))
        return tuple(choices)

    def _new_places(self, here: tuple[_Instance, ...], profile: str) -> Iterator[int]:
        """Masks of free slots for one more GPU instance, while there are engines for it."""
        if self.outer.has_engines((profile, *(instance[1] for instance in here))):
            taken = self._mask(here)
            yield from (place for place in self.instances[profile].masks if not taken & place)

    def real_start(self, taken: Iterable[Taken], choice: Choice) -> int:
        """The lowest free place on the grid of the choice's instance."""
        used = {place.start for place in taken}
        start = choice.start
        while start in used:
            start += choice.size
        return start

    def free(self, state: State) -> int:
        """Slots that no vGPU holds, those inside half-filled instances too."""
        here = cast("tuple[_Instance, ...]", state)
        return self.slots - sum(self.inside[item[2]].size * item[3] for item in here)

    def usable(self, state: State, shape: str) -> int:
        """Room in instances of its size and under new ones."""
        here = cast("tuple[_Instance, ...]", state)
        inside = self.inside[shape]
        usable_slots = sum(
            (inside.per_instance - item[3]) * inside.size for item in here if item[1:3] == (inside.profile, shape)
        )
        cover = 0
        for place in self._new_places(here, inside.profile):
            cover |= place
        return usable_slots + bin(cover).count("1")


def _scaled(places: Places, scale: int) -> Places:
    return intervals((_lowest(mask) * scale for mask in places.masks), places.size * scale)


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def _replaced(state: tuple[_Instance, ...], item: _Instance, count: int) -> State:
    return tuple(sorted((*(i for i in state if i != item), (*item[:3], count))))


def instances_of(cut: Cut | None) -> Cut | None:
    """The same without vGPUs: GPU instances alone, in memory slots of the GPU."""
    return cut.outer if isinstance(cut, NestedCut) else cut
