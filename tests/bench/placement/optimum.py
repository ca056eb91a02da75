# SPDX-License-Identifier: Apache-2.0
"""Compaction plans from an optimizer: as many GPUs as possible, then the least disturbance.

The program knows direct moves alone: a VM goes from a GPU that is emptied into space that is free now. So the moves
can be made in any order. The greedy plans, which may have others step aside, are kept where they are better.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor

from orchestrator.core.placement.fleet import Gpu
from tests.bench.placement.ceiling import Ceiling
from tests.bench.placement.move_program import MoveProgram, is_movable
from tests.bench.placement.moves.compaction import Compaction, compact
from tests.bench.placement.moves.engine import MovingEngine
from tests.bench.placement.moves.trial import MovingTrial
from tests.bench.placement.whole_program import Maximise

_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class BestCompaction:
    """A plan and what bounds it.

    ``gap``: GPUs that a better plan of direct moves could yet free, at most; 0 when proved that there is none.
    ``minimum``: GPUs needed if everything could be rearranged. ``greedy``: the greedy plan was the best one found.
    """

    plan: Compaction
    active: int
    minimum: int
    gap: int
    greedy: bool


def best_compaction(engine: MovingEngine, maximise: Maximise, seconds: float) -> BestCompaction:
    """Free the most GPUs with the fewest moves; the engine ends in the state after it."""
    moving = MoveProgram(engine, cost=1.0)
    targets = [gpu for gpu in engine.fleet.gpus if gpu.held and _takes_vms(gpu)]
    sources = [gpu for gpu in targets if all(is_movable(engine, vm_id) for vm_id in _vms(gpu))]
    worth = float(sum(len(gpu.held) for gpu in sources) + 1)  # one GPU more is better than any number of moves fewer
    emptied = {gpu.number: moving.program.column(1, worth) for gpu in sources}
    for gpu in sources:
        moving.leave(_vms(gpu), emptied[gpu.number])
    for gpu in targets:
        moving.offer(gpu, gpu.cut, closed_by=emptied.get(gpu.number))
    moving.close()
    answer = maximise(moving.program, seconds)
    before, trial = engine.fleet.active, MovingTrial(engine)
    plan, by_greedy = compact(engine, trial=trial), True
    most = len(sources)
    if answer is not None:
        gone = [number for number, column in emptied.items() if answer.values[column]]
        most = len(gone) if answer.proved else floor(answer.bound / worth + 1 - _ROUNDING)
        if (len(gone), -moving.moves(answer)) > (plan.freed, -len(plan.moves)):
            trial.undo()
            going = [vm_id for number in gone for vm_id in _vms(engine.fleet.gpus[number])]
            plan, by_greedy = Compaction(moving.carry_out(answer, trial, going), len(gone)), False
    minimum = Ceiling(engine.fleet, engine.counts).minimum_gpus()
    gap = max(0, min(most, before - minimum) - plan.freed)
    return BestCompaction(plan, engine.fleet.active, minimum, gap, by_greedy)


def _takes_vms(gpu: Gpu) -> bool:
    return gpu.usable and not gpu.whole and not gpu.host.view.cordoned


def _vms(gpu: Gpu) -> list[str]:
    return [item.vm_id for _, item in gpu.held]
