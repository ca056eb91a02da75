# SPDX-License-Identifier: Apache-2.0
"""Equal-size time-slicing: all vGPUs of a GPU have one framebuffer size; any free slot is as good as another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from orchestrator.core.geometry.cut import Choice, Cut, IllegalLayout, State, Taken


class EqualSizeCut(Cut):
    """``count`` slots of ``size_mib`` each; the state is how many are taken."""

    def __init__(self, size_mib: int, count: int) -> None:
        self.name, self.kind, self.slots, self.slot_mib = f"time_sliced:{size_mib}", "time_sliced", count, size_mib
        self.shape = str(size_mib)
        self.shapes = (self.shape,)
        self.empty = 0
        self.key = (self.name, count)

    def size(self, shape: str) -> int:
        """Always one slot."""
        return 1

    def classify(self, taken: Iterable[Taken]) -> State:
        """How many slots are taken."""
        slots = [slot for place in taken for slot in place.slots]
        if len(set(slots)) != len(slots) or any(not 0 <= slot < self.slots for slot in slots):
            raise IllegalLayout(f"slots {sorted(slots)} do not fit {self.slots} slots of {self.name}")
        return len(slots)

    def choices(self, state: State, shape: str) -> tuple[Choice, ...]:
        """One choice while a slot is free."""
        state = cast("int", state)
        if shape != self.shape or state >= self.slots:
            return ()
        return (Choice(state, 1, state + 1),)

    def room(self, state: State, shape: str) -> int:
        """Not counted one by one: a host says how many there are."""
        return self.usable(state, shape)

    def real_start(self, taken: Iterable[Taken], choice: Choice) -> int:
        """The lowest free slot."""
        used = {slot for place in taken for slot in place.slots}
        return next(slot for slot in range(self.slots) if slot not in used)

    def free(self, state: State) -> int:
        """Slots not taken."""
        state = cast("int", state)
        return self.slots - state

    def usable(self, state: State, shape: str) -> int:
        """All free slots for its own size, none for another."""
        return self.free(state) if shape == self.shape else 0
