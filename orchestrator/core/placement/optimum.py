# SPDX-License-Identifier: Apache-2.0
"""Compaction and drain plans from an optimizer: as many GPUs or VMs as possible, then the least disturbance.

The program knows direct moves alone: a VM goes from a GPU that is emptied into space that is free now. So the moves
can be made in any order. The greedy plans, which may have others step aside, are kept where they are better.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor

from orchestrator.core.placement.ceiling import Ceiling
from orchestrator.core.placement.compaction import Compaction, Drain, compact, drain
from orchestrator.core.placement.engine import Engine
from orchestrator.core.placement.fleet import Gpu, Host
from orchestrator.core.placement.move_program import MoveProgram, is_movable
from orchestrator.core.placement.trial import Trial
from orchestrator.core.whole_program import Maximise

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


@dataclass(frozen=True, slots=True)
class BestDrain:
    """A plan, and how many VMs more a better plan of direct moves could yet take off the host, at most."""

    plan: Drain
    gap: int
    greedy: bool


def best_compaction(engine: Engine, maximise: Maximise, seconds: float) -> BestCompaction:
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
    before, trial = engine.fleet.active, Trial(engine)
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


def best_drain(engine: Engine, host: Host, maximise: Maximise, seconds: float) -> BestDrain:
    """Take the most VMs off a host, opening the fewest GPUs; the engine ends in the state after it."""
    moving = MoveProgram(engine, cost=-float(len(host.vms) + 1))
    going = sorted(vm_id for vm_id in host.vms if is_movable(engine, vm_id))
    moving.leave(going, None)
    opened: dict[int, int] = {}
    for gpu in engine.fleet.gpus:
        if gpu.host is host or not _takes_vms(gpu):
            continue
        if gpu.held:
            moving.offer(gpu, gpu.cut)
        elif opened.get(gpu.table.number, 0) < len(going):  # more empty GPUs than VMs are of no use
            opened[gpu.table.number] = opened.get(gpu.table.number, 0) + 1
            moving.open(gpu)
    moving.close()
    answer = maximise(moving.program, seconds)
    trial, here = Trial(engine), len(host.vms)
    plan, by_greedy = drain(engine, host, trial), True
    most = here
    if answer is not None:
        moved = moving.moves(answer)
        most = moved if answer.proved else floor(answer.bound / (here + 1) + 1 - _ROUNDING)
        if moved > len(plan.moves):
            trial.undo()
            moves = moving.carry_out(answer, trial, going)
            gone = {one.vm_id for one in moves}
            plan, by_greedy = Drain(moves, tuple(vm_id for vm_id in sorted(host.vms) if vm_id not in gone)), False
    return BestDrain(plan, max(0, most - len(plan.moves)), by_greedy)


def _takes_vms(gpu: Gpu) -> bool:
    return gpu.usable and not gpu.whole and gpu.tenant is None and not gpu.host.view.cordoned


def _vms(gpu: Gpu) -> list[str]:
    return [item.vm_id for _, item in gpu.held]
