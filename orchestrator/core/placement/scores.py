# SPDX-License-Identifier: Apache-2.0
"""How good a place is: lower is better.

The score adds up, over all that can be asked for, the free memory that a request of that kind could not
use, weighted by the memory demanded; the best place is the one that makes this grow least. Every part is taken to be
asked for as often as every other, and parts as often as whole GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.geometry.cut import Cut, State
from orchestrator.core.placement.state_table import Demand, StateStep, StateTable

_WHOLE_COUNTS = (1, 2, 4, 8)
"""Whole GPUs of one request; each as often as the others."""
_FULLER_FIRST = 1e-9
"""Breaks ties towards the GPU that ends up fuller; too little to outweigh a real difference."""

Options = tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One kind of demand on a geometry: how it may be placed (empty: whole GPUs) and its weight."""

    options: Options
    weight: float


class Scores:
    """Scores of places, worked out once for each state of a GPU or host that is met."""

    prefers_used_hosts = True
    """Ties go to hosts that already have VMs."""

    def __init__(self) -> None:
        self._wanted: dict[int, tuple[_Wanted, ...]] = {}
        self._fragments: dict[tuple[int, int, State], float] = {}
        self._board_fragments: dict[tuple[int, int], float] = {}
        counts = {count: self.whole_weight(count) / len(_WHOLE_COUNTS) for count in _WHOLE_COUNTS}
        total = sum(counts.values()) + 1.0  # of parts
        self._whole = tuple((count, weight / total) for count, weight in counts.items())

    def of_step(self, table: StateTable, state: int, step: StateStep) -> float:
        """Score of taking ``step`` on a GPU in ``state``."""
        after = step.choice.after
        cut, before = table.states[state]
        growth = self.fragments(table, step.cut, after) - self.fragments(table, cut, before)
        return round(growth, 3) + _FULLER_FIRST * table.free_mib(step.cut, after)

    def of_board(self, board: Cut, number: int, before: int, after: int, *, opens: bool) -> float:
        """Score of taking GPUs of a host as a whole, or (``opens``) of opening one for parts."""
        return round(self._board_fragment(board, number, after) - self._board_fragment(board, number, before), 3)

    def fragments(self, table: StateTable, cut: int, state: State) -> float:
        """Expected unusable free memory of a GPU, MiB."""
        key = (table.number, cut, state)
        known = self._fragments.get(key)
        if known is None:
            free = table.free_mib(cut, state)
            known = self._fragments[key] = sum(
                w.weight * (free - table.usable_mib(cut, state, w.options)) if w.options or cut >= 0 else 0.0
                for w in self._wanted_on(table)
            )
        return known

    def _wanted_on(self, table: StateTable) -> tuple[_Wanted, ...]:
        known = self._wanted.get(table.number)
        if known is None:
            known = self._wanted[table.number] = self._find_wanted(table)
        return known

    def _find_wanted(self, table: StateTable) -> tuple[_Wanted, ...]:
        known = dict.fromkeys(table.options(Demand(profile)) for profile in table.geometry.options)
        known.pop((), None)
        counts: dict[Options, float] = {options: 1.0 / len(known) for options in known}
        counts[()] = 1.0
        weights = {o: c * self.weight(table, o) for o, c in counts.items()}
        total = sum(weights.values())
        return tuple(_Wanted(options, weight / total) for options, weight in weights.items())

    def weight(self, table: StateTable, options: Options) -> float:
        """How much one request counts: the GPU memory that it takes, a whole GPU's without ``options``."""
        if not options:
            return float(table.total_mib)
        return float(min(table.cuts[cut].size(shape) * table.cuts[cut].slot_mib for cut, shape in options))

    def whole_weight(self, count: int) -> int:
        """How much one request for that many whole GPUs counts."""
        return count

    def _board_fragment(self, board: Cut, number: int, mask: int) -> float:
        key = (number, mask)
        known = self._board_fragments.get(key)
        if known is None:
            free = board.free(mask)
            known = self._board_fragments[key] = sum(
                weight * (free - board.usable(mask, f"gpu:{count}")) * board.slot_mib
                for count, weight in self._whole
                if f"gpu:{count}" in board.shapes
            )
        return known
