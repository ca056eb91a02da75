# SPDX-License-Identifier: Apache-2.0
"""Making room by moving a few VMs: fewest moves first, then the least memory carried, then the best score.

Every move goes into space that is free at that moment, while the VM still holds its old place, so a plan can be
carried out one migration after the other.
"""

from __future__ import annotations

from orchestrator.core.placement.ceiling import Ceiling
from orchestrator.core.placement.engine import Engine, demand_of
from orchestrator.core.placement.nearby import plan_beside
from orchestrator.core.placement.targets import Target, targets
from orchestrator.core.placement.trial import Moved, Trial
from orchestrator.core.placement.views import Request

MOST_MOVES = 3
_MOST_TRIES = 12
"""Places tried out per search, the best first; keeps a hopeless search short."""
_NEVER = 99


def make_room(engine: Engine, request: Request, most: int = MOST_MOVES) -> tuple[Moved, ...] | None:
    """Move up to ``most`` VMs in the engine so that ``request`` fits; None, with nothing changed, if that fails."""
    if request.count > 1 or engine.usage.refuses(request) is not None:
        return None
    if not request.is_filtered:
        ceiling = Ceiling(engine.fleet, engine.counts)
        if not ceiling.fits(demand_of(request)):
            return None
    search = _Search(engine)
    for budget in range(1, most + 1):
        if search.need(request, budget) <= budget:
            moves = search.clear_a_place(request, budget, frozenset())
            if moves is not None:
                return moves
    return None


class _Search:
    """One search. ``need`` is a hint from the state at its beginning; only real trials count."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.trial = Trial(engine)
        self.tries = _MOST_TRIES
        self._needs: dict[tuple[object, int], int] = {}

    def need(self, request: Request, budget: int) -> int:
        """Moves that make room for ``request`` when the moves do not get in each other's way."""
        key = (demand_of(request), request.vcpus, request.memory_mib)
        known = self._needs.get((key, budget))
        if known is not None:
            return known
        if budget == 0:
            found = 0 if self.engine.plan(request) is not None else _NEVER
        else:
            found = self.need(request, budget - 1)
            if found > budget - 1:
                self._needs[key, budget] = found
                found = min(
                    (self._total(t, budget) for t in self._targets(request, budget, frozenset())), default=_NEVER
                )
        self._needs[key, budget] = found
        return found

    def _total(self, target: Target, budget: int) -> int:
        total, spare = len(target.leavers), budget - len(target.leavers)
        for vm_id in target.leavers:
            need = self.need(self.engine.vms[vm_id].request, spare)
            total, spare = total + need, spare - need
            if spare < 0:
                return _NEVER
        return total

    def _targets(self, request: Request, budget: int, busy: frozenset[str]) -> list[Target]:
        return list(targets(self.engine, request, budget, busy))

    def clear_a_place(self, request: Request, budget: int, busy: frozenset[str]) -> tuple[Moved, ...] | None:
        """Clear one place for ``request`` with at most ``budget`` moves. VMs in ``busy`` stay where they are."""
        rated = [(self._total(t, budget), t) for t in self._targets(request, budget, busy)]
        hopeful = [(total, t) for total, t in rated if total <= budget]
        hopeful.sort(key=lambda pair: (pair[0], pair[1].cost, pair[1].gpus[0].number, pair[1].mask))
        for _, target in hopeful:
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
