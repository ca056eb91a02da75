# SPDX-License-Identifier: Apache-2.0
"""Plans that empty GPUs or hosts: greedy, each move into space that is free at that moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from orchestrator.core.placement.constraints import allows
from orchestrator.core.placement.fleet import FleetHost, Gpu
from tests.bench.placement.moves.engine import MovingEngine
from tests.bench.placement.moves.layouts import layout_of
from tests.bench.placement.moves.repack import MAX_MOVES, step_aside
from tests.bench.placement.moves.stays import may_move
from tests.bench.placement.moves.trial import Moved, MovingTrial


@dataclass(frozen=True, slots=True)
class Compaction:
    """Moves in the order to make them, and how many GPUs they free."""

    moves: tuple[Moved, ...]
    freed: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Moves that take VMs off a host, and the VMs for which no place or no legal move was found."""

    moves: tuple[Moved, ...]
    left: tuple[str, ...]


def compact(engine: MovingEngine, trial: MovingTrial | None = None) -> Compaction:
    """Empty as many GPUs as possible into others that are in use; the engine ends in the state after it.

    GPUs with the fewest VMs and slots go first: by direct moves, then with more and more others stepping aside. A GPU
    is emptied whole or left alone. ``trial`` can take it all back.
    """
    trial = trial or MovingTrial(engine)
    moves: list[Moved] = []
    freed = 0
    engine.opens_gpus = False
    try:
        for aside in range(MAX_MOVES + 1):
            done = _pass(trial, aside)
            moves += done.moves
            freed += done.freed
    finally:
        engine.opens_gpus = True
    return Compaction(tuple(moves), freed)


def _pass(trial: MovingTrial, aside: int) -> Compaction:
    """Each GPU once; up to ``aside`` other VMs may step aside for one that finds no place."""
    engine = trial.engine
    moves: list[Moved] = []
    freed = 0
    failed: set[object] = set()
    waiting = [(_weight(gpu), gpu.number) for gpu in _candidates(engine)]
    heapify(waiting)
    while waiting:
        weight, number = heappop(waiting)
        gpu = engine.fleet.gpus[number]
        layout = layout_of(gpu)
        if not gpu.held or layout in failed:
            continue
        if weight != _weight(gpu):  # it took in VMs of others meanwhile: its turn comes later
            heappush(waiting, (_weight(gpu), number))
            continue
        made = _empty(trial, gpu, aside)
        if made is None:
            failed.add(layout)
        else:
            moves += made
            freed += 1
            failed.clear()
    return Compaction(tuple(moves), freed)


def _candidates(engine: MovingEngine) -> list[Gpu]:
    return [
        gpu for gpu in engine.fleet.gpus
        if gpu.held and not gpu.whole and gpu.usable and all(_may_move(engine, item.vm_id) for _, item in gpu.held)
    ]  # fmt: skip


def _may_move(engine: MovingEngine, vm_id: str) -> bool:
    """Whether the VM may be moved at all, in one piece."""
    held = engine.vms.get(vm_id)
    return held is not None and may_move(held.request) and held.request.count == 1


def _weight(gpu: Gpu) -> tuple[int, int, int]:
    """Few VMs first, then few slots; the highest number first, as placement fills from the lowest."""
    slots = sum(taken.size for taken, _ in gpu.held) * gpu.table.cuts[gpu.cut].slot_mib if gpu.held else 0
    return len(gpu.held), slots, -gpu.number


def _empty(trial: MovingTrial, gpu: Gpu, aside: int) -> list[Moved] | None:
    """Move everything off a GPU, which takes nothing in meanwhile; None, with nothing changed, when that fails."""
    engine, mark = trial.engine, trial.mark
    staying = frozenset(item.vm_id for _, item in gpu.held)
    leaving = [item.vm_id for _, item in sorted(gpu.held, key=lambda pair: -pair[0].size)]
    _set_usable(engine, gpu, usable=False)
    made: list[Moved] | None = []
    moves: list[Moved] = []
    for vm_id in leaving:
        made = _move_off(trial, vm_id, aside, staying)
        if made is None:
            trial.undo(mark)
            break
        moves += made
    _set_usable(engine, gpu, usable=True)
    return None if made is None else moves


def _set_usable(engine: MovingEngine, gpu: Gpu, *, usable: bool) -> None:
    gpu.usable = usable
    engine.fleet.reindex(gpu.host)
    engine.layouts.note(gpu)


def _move_off(trial: MovingTrial, vm_id: str, aside: int, staying: frozenset[str]) -> list[Moved] | None:
    """Move one VM onto a GPU in use, after up to ``aside`` others if need be; failing may leave those moved."""
    moved = _move(trial.engine, trial, vm_id, lambda _, other: other is not None)
    if moved is not None:
        return [moved]
    before = step_aside(trial, trial.engine.vms[vm_id].request, aside, staying)
    moved = _move(trial.engine, trial, vm_id, lambda _, other: other is not None) if before else None
    return None if moved is None else [*(before or ()), moved]


def _move(
    engine: MovingEngine, trial: MovingTrial, vm_id: str, accept: Callable[[FleetHost, Gpu | None], bool]
) -> Moved | None:
    if not _may_move(engine, vm_id):
        return None
    request = engine.vms[vm_id].request
    plan = engine.plan_among(
        request, lambda host, gpu: accept(host, gpu) and (not engine.is_filtered(request) or allows(request, host, gpu))
    )
    return trial.move(vm_id, plan) if plan is not None else None


def drain(engine: MovingEngine, host: FleetHost, trial: MovingTrial | None = None) -> Drain:
    """Move every VM off a host, biggest first, onto other hosts that are not cordoned."""
    trial = trial or MovingTrial(engine)
    sizes = {
        item.vm_id: gpu.table.total_mib if gpu.whole else taken.size * gpu.table.cuts[gpu.cut].slot_mib
        for gpu in host.gpus
        for taken, item in gpu.held
    }
    moves, left = [], []
    for vm_id in sorted(sizes, key=lambda v: (-sizes[v], v)):
        moved = _move(engine, trial, vm_id, lambda other, _: other is not host)
        if moved is None:
            left.append(vm_id)
        else:
            moves.append(moved)
    return Drain(tuple(moves), tuple(left))
