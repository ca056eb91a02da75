# SPDX-License-Identifier: Apache-2.0
"""Whole GPUs of one host: fabric partitions of a baseboard, or any set with GPUs of one NUMA node first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import cast

from orchestrator.core.geometry.cut import Choice, Cut, IllegalLayout, State, Taken, bits
from orchestrator.core.geometry.mask_cut import MaskCut, Places

WHOLE = "whole"


def shape_of(count: int) -> str:
    """Name of the shape of ``count`` whole GPUs."""
    return f"gpu:{count}"


def fabric_board(partitions: Iterable[Sequence[int]], modules: Sequence[int], gpu_mib: int, alone: int = 0) -> MaskCut:
    """The board of a host whose GPUs hang on an NVSwitch: a tenant's GPUs must equal one partition.

    ``partitions`` list module ids; ``modules[i]`` is the module id of the host's i-th GPU (PCI order differs).
    Partitions with a module that the host lacks are left out. ``alone``: a mask of those that none of several may have.
    """
    position = {module: i for i, module in enumerate(modules)}
    masks: dict[int, set[int]] = {}
    for partition in partitions:
        if all(module in position for module in partition):
            mask, of_size = sum(1 << position[m] for m in partition), masks.setdefault(len(partition), set())
            if len(partition) == 1 or not mask & alone:
                of_size.add(mask)
    places = {
        shape_of(count): Places(count, tuple(sorted(starts, key=lambda m: (m & -m, m))))
        for count, starts in sorted(masks.items())
    }
    return MaskCut(WHOLE, "whole", len(modules), gpu_mib, places)


class AnySetBoard(Cut):
    """The board of a host without a fabric: any GPUs will do, fewest NUMA nodes first."""

    def __init__(self, numa: Sequence[int | None], gpu_mib: int, alone: int = 0) -> None:
        """``numa[i]`` is the NUMA node of the host's i-th GPU; None counts as one node of its own. ``alone``: a mask of
        those that no set of several may have."""
        self.name, self.kind, self.slots, self.slot_mib = WHOLE, "whole", len(numa), gpu_mib
        self.shapes = tuple(shape_of(count) for count in range(1, len(numa) + 1))
        self.empty = 0
        self.key = (WHOLE, "any", tuple(numa), gpu_mib, alone)
        self._alone = alone
        nodes = sorted({-1 if node is None else node for node in numa})
        at = [nodes.index(-1 if node is None else node) for node in numa]
        self._nodes = tuple(sum(1 << i for i, n in enumerate(at) if n == node) for node in range(len(nodes)))

    def size(self, shape: str) -> int:
        """The count in the name."""
        return int(shape.removeprefix("gpu:"))

    def classify(self, taken: Iterable[Taken]) -> State:
        """The taken GPUs as a mask."""
        state = 0
        for place in taken:
            mask = ((1 << place.size) - 1) << place.start
            if state & mask or mask >> self.slots:
                raise IllegalLayout(f"GPU {place.start} is taken twice or not there")
            state |= mask
        return state

    def choices(self, state: State, shape: str) -> tuple[Choice, ...]:
        """One choice: within the fullest NUMA node that has enough, else from the emptiest nodes on."""
        state = cast("int", state)
        count = self.size(shape)
        free = [mask & ~self.closed_to(shape, state) for mask in self._nodes]
        enough = [mask for mask in free if bits(mask) >= count]
        if enough:
            mask = _first_bits(min(enough, key=bits), count)
        else:
            mask = _gather(sorted(free, key=bits, reverse=True), count)
        return (Choice((mask & -mask).bit_length() - 1, count, state | mask, mask),) if mask else ()

    def real_start(self, taken: Iterable[Taken], choice: Choice) -> int:
        """The first GPU's position."""
        return choice.start

    def free(self, state: State) -> int:
        """GPUs not taken."""
        state = cast("int", state)
        return self.slots - bits(state)

    def usable(self, state: State, shape: str) -> int:
        """Free GPUs that sets of this size can use up."""
        free = self.free(self.closed_to(shape, state))
        return free - free % self.size(shape)

    def closed_to(self, shape: str, state: State) -> int:
        """Those that are taken, or that no such set may have."""
        return cast("int", state) | (self._alone if self.size(shape) > 1 else 0)


def other_models(models: Sequence[str], wanted: Collection[str]) -> tuple[int, ...]:
    """For each model that will do (``wanted`` empty: any), the positions of the others: a set is of one model.

    ``models[i]`` is that of the host's i-th GPU.
    """
    return tuple(
        sum(1 << i for i, other in enumerate(models) if other != model)
        for model in dict.fromkeys(models)
        if not wanted or model in wanted
    )


def _first_bits(mask: int, count: int) -> int:
    taken = 0
    for _ in range(count):
        low = (mask & ~taken) & -(mask & ~taken)
        taken |= low
    return taken


def _gather(masks: list[int], count: int) -> int:
    taken = 0
    for mask in masks:
        taken |= _first_bits(mask, min(bits(mask), count - bits(taken)))
    return taken if bits(taken) == count else 0
