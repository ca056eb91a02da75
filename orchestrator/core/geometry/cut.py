# SPDX-License-Identifier: Apache-2.0
"""A cut: one way of dividing a GPU (or a host's GPUs) into slots, and where each shape may lie in it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from orchestrator.core.units import MIB, show_size

CutKind = Literal["mig", "time_sliced", "mixed", "mixable", "whole"]
"""``mixable``: as ``mixed``, on a GPU that mixes no sizes now and is switched for whoever asks for that."""
MIXES: Final[tuple[CutKind, ...]] = ("mixed", "mixable")
State = Hashable
"""What matters of an occupied cut for the future. Equal states offer the same choices."""


@dataclass(frozen=True, slots=True)
class Taken:
    """One occupied place. ``start`` and ``size`` are slots of the cut."""

    shape: str
    start: int
    size: int

    @property
    def slots(self) -> tuple[int, ...]:
        """The slot numbers it holds."""
        return tuple(range(self.start, self.start + self.size))


@dataclass(frozen=True, slots=True)
class Choice:
    """One legal place for a shape in a state, and the state it leads to."""

    start: int
    size: int
    after: State
    mask: int = 0
    """Bit i is set when slot i is taken; 0 where only a number is known (slots are interchangeable)."""


def cut_words(name: str | None) -> str:
    """What people read of a cut's stored name: ``vGPUs of 12GiB`` of ``time_sliced:12288``; ``-`` of no cut."""
    if name is None:
        return "-"
    kind, _, size_mib = name.partition(":")
    if kind == "time_sliced" and size_mib.isdecimal():
        return f"vGPUs of {show_size(int(size_mib) * MIB)}"
    return {"mixed": "vGPUs of mixed sizes", "mig": "MIG"}.get(name, name)


class IllegalLayout(ValueError):
    """Places that overlap or that the table does not allow: what is there was not made by these rules."""


class Cut(ABC):
    """One way of dividing. Instances are immutable; equal ``key`` means equal behaviour."""

    name: str
    """Stable text stored with claims, e.g. ``mig``, ``time_sliced:2048``, ``mixed``, ``whole``."""
    kind: CutKind
    slots: int
    slot_mib: int
    """GPU memory behind one slot, for weighing waste on different GPUs against each other."""
    shapes: tuple[str, ...]
    empty: State
    key: tuple[Hashable, ...]

    def divides(self, one: str | None, other: str | None) -> bool:
        """Whether the GPU itself keeps the memory and engines of these shapes from each other, wherever they lie."""
        return self.kind == "mig"

    def instance_of(self, shape: str, start: int) -> tuple[str, int] | None:
        """The GPU instance around a place: its profile and first memory slot; None: there is none."""
        return (shape, start) if self.kind == "mig" else None

    def starts_in(self, shape: str, first: int) -> tuple[int, ...]:
        """Where the shape may begin in the GPU instance whose first memory slot that is."""
        return (first,)

    @abstractmethod
    def size(self, shape: str) -> int:
        """Slots that one instance takes."""

    @abstractmethod
    def classify(self, taken: Iterable[Taken]) -> State:
        """The state that these places amount to.

        :raises IllegalLayout: they overlap or one is not where the table allows it
        """

    @abstractmethod
    def choices(self, state: State, shape: str) -> tuple[Choice, ...]:
        """Every distinct legal place, lowest start first. Empty: it does not fit."""

    def room(self, state: State, shape: str) -> int:
        """How many more instances fit, each at the lowest place."""
        count = 0
        while choices := self.choices(state, shape):
            state, count = choices[0].after, count + 1
        return count

    @abstractmethod
    def real_start(self, taken: Iterable[Taken], choice: Choice) -> int:
        """Where ``choice`` lies on a GPU that holds ``taken``: states may leave open which of equal slots is free."""

    @abstractmethod
    def free(self, state: State) -> int:
        """Slots not taken."""

    @abstractmethod
    def usable(self, state: State, shape: str) -> int:
        """Free slots that instances of ``shape`` could cover."""

    def slots_of(self, start: int, choice: Choice) -> tuple[int, ...]:
        """Slot numbers to claim for ``choice`` placed at its real ``start``."""
        if choice.mask:
            return _positions(choice.mask)
        return tuple(range(start, start + choice.size))


@lru_cache(maxsize=4096)
def _positions(mask: int) -> tuple[int, ...]:
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)


def bits(mask: int) -> int:
    """Number of set bits."""
    return bin(mask).count("1")


def pack(cut: Cut, shapes: Sequence[str]) -> tuple[tuple[str, int], ...] | None:
    """(shape, start) of each, by start; None: they do not fit together. Every shape must be one of the cut's.

    The largest are placed first, each as high as it can lie, which leaves the lower places to what has more of them;
    where that leads nowhere, the next place is tried.
    """
    wanted = sorted(shapes, key=lambda shape: (-cut.size(shape), shape))
    placed = _placed(cut, cut.empty, wanted)
    return None if placed is None else tuple(sorted(placed, key=lambda one: one[1]))


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
