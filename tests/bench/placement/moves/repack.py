# SPDX-License-Identifier: Apache-2.0
"""Making room by moving a few VMs: fewest moves first, then the least memory carried, then the best score.

Every move goes into space that is free at that moment, while the VM still holds its old place, so a plan can be
carried out one migration after the other.
"""

from __future__ import annotations

from orchestrator.core.placement.engine import demand_of
from orchestrator.core.placement.views import Request
from tests.bench.placement.ceiling import Ceiling
from tests.bench.placement.moves.engine import MovingEngine
from tests.bench.placement.moves.layouts import NeedKey
from tests.bench.placement.moves.nearby import plan_beside
from tests.bench.placement.moves.targets import MAX_LEAVERS, Target, combinations, need_key, targets
from tests.bench.placement.moves.trial import Moved, MovingTrial

MAX_MOVES = MAX_LEAVERS
_MAX_TRIES = 12
"""Places tried out per search, the best first; keeps a hopeless search short."""
_NEVER = 99


def make_room(
    engine: MovingEngine, request: Request, most: int = MAX_MOVES, trial: MovingTrial | None = None
) -> tuple[Moved, ...] | None:
    """Move up to ``most`` VMs in the engine so that ``request`` fits; None, with nothing changed, if that fails.

    The moves are recorded in ``trial``, which can take them back."""
    if request.count > 1:
        return None
    if not engine.is_filtered(request):
        ceiling = Ceiling(engine.fleet, engine.counts)
        if not ceiling.fits(demand_of(request)):
            return None
    search = _Search(engine, trial)
    for budget in range(1, most + 1):
        if search.need(need_key(engine, request), budget) <= budget:
            moves = search.clear_a_place(request, budget, frozenset())
            if moves is not None:
                return moves
    return None


def step_aside(trial: MovingTrial, request: Request, most: int, staying: frozenset[str]) -> tuple[Moved, ...] | None:
    """Move up to ``most`` VMs, none of ``staying``, so that ``request`` finds a place; recorded in ``trial``."""
    search = _Search(trial.engine, trial)
    for budget in range(1, most + 1):
        moves = search.clear_a_place(request, budget, staying)
        if moves is not None:
            return moves
    return None


class _Search:
    """One search. ``need`` is a hint from the state at its beginning; only real trials count."""

    def __init__(self, engine: MovingEngine, trial: MovingTrial | None = None) -> None:
        self.engine = engine
        self.trial = trial or MovingTrial(engine)
        self.tries = _MAX_TRIES
        self._needs: dict[tuple[NeedKey, int], int] = {}
        self._combinations: dict[NeedKey, set[tuple[NeedKey, ...]]] = {}

    def need(self, key: NeedKey, budget: int) -> int:
        """Moves that make room for such a request when the moves do not get in each other's way."""
        known = self._needs.get((key, budget))
        if known is not None:
            return known
        if budget == 0:
            found = 0 if self.engine.plan(self.engine.layouts.examples[key]) is not None else _NEVER
        else:
            found = self.need(key, budget - 1)
            if found > budget - 1:
                self._needs[key, budget] = found
                found = budget if self._hopeful(key, budget) else _NEVER
        self._needs[key, budget] = found
        return found

    def _hopeful(self, key: NeedKey, budget: int) -> set[tuple[NeedKey, ...]]:
        """Combinations of leavers that can all be dealt with in the budget."""
        if key not in self._combinations:
            self._combinations[key] = combinations(self.engine, self.engine.layouts.examples[key])
        return {leavers for leavers in self._combinations[key] if self._total(leavers, budget) <= budget}

    def _total(self, leavers: tuple[NeedKey, ...], budget: int) -> int:
        total, spare = len(leavers), budget - len(leavers)
        for key in leavers:
            if spare < 0:
                return _NEVER
            need = self.need(key, spare)
            total, spare = total + need, spare - need
        return total

    def clear_a_place(self, request: Request, budget: int, busy: frozenset[str]) -> tuple[Moved, ...] | None:
        """Clear one place for ``request`` with at most ``budget`` moves. VMs in ``busy`` stay where they are."""
        hopeful = self._hopeful(need_key(self.engine, request), budget)
        found = list(targets(self.engine, request, budget, busy, hopeful))
        found.sort(key=lambda t: (len(t.leavers), t.cost, t.gpus[0].number, t.mask))
        for target in found:
            if self.tries <= 0:
                return None
            self.tries -= 1
            mark = self.trial.mark
            moves = self._clear(target, budget, busy)
            if moves is not None and self.engine.plan(request) is not None:
                return moves
            self.trial.undo(mark)
        return None

    def _clear(self, target: Target, budget: int, busy: frozenset[str]) -> tuple[Moved, ...] | None:
        moves: list[Moved] = []
        staying = busy | frozenset(target.leavers)
        left = budget - len(target.leavers)
        for vm_id in sorted(target.leavers, key=lambda v: (-self._weight(v), v)):
            request = self.engine.vms[vm_id].request
            plan = plan_beside(self.engine, request, target.gpus, target.mask)
            if plan is None and left > 0:
                more = self.clear_a_place(request, left, staying)
                if more is None:
                    return None
                moves.extend(more)
                left -= len(more)
                plan = plan_beside(self.engine, request, target.gpus, target.mask)
            if plan is None:
                return None
            moves.append(self.trial.move(vm_id, plan))
        return tuple(moves)

    def _weight(self, vm_id: str) -> int:
        gpus = self.engine.vms[vm_id].gpus
        return sum(taken.size for gpu in gpus for taken, item in gpu.held if item.vm_id == vm_id)
