# SPDX-License-Identifier: Apache-2.0
"""The states of all GPUs of one geometry: numbered when first met, with what may be placed next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, get_args

from orchestrator.core.geometry.cut import Choice, CutKind, State
from orchestrator.core.geometry.geometry import Geometry

EMPTY: Final = 0
"""Number of the state of a GPU that holds nothing and may take any cut."""

_UNASKED: Final = frozenset(get_args(CutKind)) - {"mixable"}
"""What a demand that names no kind may be cut from: no GPU is switched for it."""


@dataclass(frozen=True, slots=True)
class StateStep:
    """One way to place a shape: the cut's position in the geometry, the shape there and the choice."""

    cut: int
    shape: str
    choice: Choice


class Demand(NamedTuple):
    """What of a request decides which places are legal: requests with equal demands share a ranking."""

    profile: str
    cut_kinds: tuple[CutKind, ...] = ()
    gpu_models: tuple[str, ...] = ()

    @property
    def whole_gpus(self) -> int:
        """N of ``gpu:N``, else 0."""
        return int(self.profile.removeprefix("gpu:")) if self.profile.startswith("gpu:") else 0


class StateTable:
    """One geometry's states. Number 0 is the empty GPU."""

    def __init__(self, geometry: Geometry, number: int) -> None:
        self.geometry = geometry
        self.number = number
        self.cuts = geometry.cuts
        self.total_mib = max((cut.slots * cut.slot_mib for cut in geometry.cuts), default=geometry.memory_mib)
        self.states: list[tuple[int, State]] = [(-1, None)]
        self._numbers: dict[tuple[int, State], int] = {}
        self._cut_at = {cut.name: i for i, cut in enumerate(geometry.cuts)}
        self._options: dict[Demand, tuple[tuple[int, str], ...]] = {}

    def number_of(self, cut: int, state: State) -> tuple[int, bool]:
        """The state's number, and whether it is new."""
        if cut < 0 or state == self.cuts[cut].empty:
            return EMPTY, False
        known = self._numbers.get((cut, state))
        if known is not None:
            return known, False
        self._numbers[cut, state] = number = len(self.states)
        self.states.append((cut, state))
        return number, True

    def cut_index(self, name: str) -> int | None:
        return self._cut_at.get(name)

    def options(self, demand: Demand) -> tuple[tuple[int, str], ...]:
        """(cut position, shape) pairs that serve the demand on this geometry."""
        known = self._options.get(demand)
        if known is None:
            known = self._options[demand] = self._find_options(demand)
        return known

    def _find_options(self, demand: Demand) -> tuple[tuple[int, str], ...]:
        if demand.gpu_models and self.geometry.model not in demand.gpu_models:
            return ()
        pairs = ((self._cut_at[cut], shape) for cut, shape in self.geometry.options.get(demand.profile, ()))
        wanted_kinds = demand.cut_kinds or _UNASKED
        return tuple(pair for pair in pairs if self.cuts[pair[0]].kind in wanted_kinds)

    def steps(self, state: int, demand: Demand) -> list[StateStep]:
        """Every legal way to place the demand on a GPU in this state."""
        here, value = self.states[state]
        return [
            StateStep(cut, shape, choice)
            for cut, shape in self.options(demand)
            if here in {-1, cut}
            for choice in self.cuts[cut].choices(self.cuts[cut].empty if here < 0 else value, shape)
        ]

    def free_mib(self, cut: int, state: State) -> int:
        """GPU memory that nothing holds, also what the cut itself leaves over."""
        if cut < 0:
            return self.total_mib
        here = self.cuts[cut]
        return here.free(state) * here.slot_mib + self.total_mib - here.slots * here.slot_mib

    def usable_mib(self, cut: int, state: State, options: tuple[tuple[int, str], ...]) -> int:
        """Free GPU memory that instances of a demand could cover."""
        best = 0
        for index, shape in options:
            if cut in {-1, index}:
                here = self.cuts[index]
                best = max(best, here.usable(here.empty if cut < 0 else state, shape) * here.slot_mib)
        return best
