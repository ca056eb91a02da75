# SPDX-License-Identifier: Apache-2.0
"""Making room by moving a few VMs: fewest moves first, then the least memory carried, then the best score.

Every move goes into space that is free at that moment, while the VM still holds its old place, so a plan can be
carried out one migration after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from orchestrator.core.geometry.equal_size import EqualSizeCut
from orchestrator.core.placement.engine import Engine, demand_of
from orchestrator.core.placement.fleet import Gpu, Host
from orchestrator.core.placement.nearby import plan_beside
from orchestrator.core.placement.state_table import EMPTY
from orchestrator.core.placement.trial import Moved, Trial
from orchestrator.core.placement.views import Request

MOST_MOVES = 3
_MOST_TRIES = 24


@dataclass(frozen=True, slots=True)
class _Target:
    """A place that is taken now: who has to leave, and the slots (or GPUs of the host) that must become free."""

    leavers: tuple[str, ...]
    cost: float
    gpus: tuple[Gpu, ...]
    mask: int
    """Slots to clear on the only GPU of ``gpus``; 0: everything on them."""


def make_room(engine: Engine, request: Request, most: int = MOST_MOVES) -> tuple[Moved, ...] | None:
    """Move up to ``most`` VMs in the engine so that ``request`` fits; None, with nothing changed, if that fails."""
    trial = Trial(engine)
    for budget in range(1, most + 1):
        moves = _search(trial, request, budget, frozenset())
        if moves is not None:
            return moves
    return None


def _search(trial: Trial, request: Request, budget: int, busy: frozenset[str]) -> tuple[Moved, ...] | None:
    """Clear one place for ``request`` with at most ``budget`` moves. VMs in ``busy`` stay where they are."""
    holes: dict[object, bool] = {}
    targets = [t for t in _targets(trial.engine, request, budget, busy) if _hopeful(trial.engine, t, budget, holes)]
    targets.sort(key=lambda t: (len(t.leavers), t.cost, t.gpus[0].number, t.mask))
    for target in targets[:_MOST_TRIES]:
        mark = trial.mark
        moves = _clear(trial, target, budget, busy)
        if moves is not None and trial.engine.plan(request) is not None:
            return moves
        trial.undo(mark)
    return None


def _hopeful(engine: Engine, target: _Target, budget: int, holes: dict[object, bool]) -> bool:
    """Whether enough leavers have somewhere to go that the rest can be dealt with in the budget."""
    spare = budget - len(target.leavers)
    homeless = 0
    for vm_id in target.leavers:
        request = engine.vms[vm_id].request
        key = (demand_of(request), request.vcpus, request.memory_mib)
        if key not in holes:
            holes[key] = engine.plan(request) is not None
        homeless += not holes[key]
    return homeless <= spare


def _clear(trial: Trial, target: _Target, budget: int, busy: frozenset[str]) -> tuple[Moved, ...] | None:
    engine = trial.engine
    moves: list[Moved] = []
    staying = busy | frozenset(target.leavers)
    left = budget - len(target.leavers)
    for vm_id in sorted(target.leavers, key=lambda v: (-_weight(engine, v), v)):
        request = engine.vms[vm_id].request
        plan = plan_beside(engine, request, target.gpus, target.mask)
        if plan is None and left > 0:
            more = _search(trial, request, left, staying)
            if more is None:
                return None
            moves.extend(more)
            left -= len(more)
            plan = plan_beside(engine, request, target.gpus, target.mask)
        if plan is None:
            return None
        moves.append(trial.move(vm_id, plan))
    return tuple(moves)


def _weight(engine: Engine, vm_id: str) -> int:
    return sum(taken.size for gpu in engine.vms[vm_id].gpus for taken, item in gpu.held if item.vm_id == vm_id)


def _targets(engine: Engine, request: Request, budget: int, busy: frozenset[str]) -> Iterator[_Target]:
    if request.count > 1:
        return
    if request.whole_gpus:
        for hosts in engine.layouts.hosts():
            host = next((h for h in hosts if _has_room(request, h)), None)
            if host is not None:
                yield from _on_host(engine, request, host, budget, busy)
        return
    for gpus in engine.layouts.gpus():
        gpu = next((g for g in gpus if _has_room(request, g.host)), None)
        if gpu is not None:
            yield from _on_gpu(engine, request, gpu, budget, busy)


def _has_room(request: Request, host: Host) -> bool:
    named = request.host is None or request.host in {host.view.host_id, host.view.name}
    return named and host.vcpus >= request.vcpus and host.memory_mib >= request.memory_mib


def _movable(engine: Engine, vm_ids: Iterable[str], busy: frozenset[str]) -> bool:
    return all(
        vm_id in engine.vms and vm_id not in busy and engine.vms[vm_id].request.migratable
        and engine.vms[vm_id].request.count == 1
        for vm_id in vm_ids
    )  # fmt: skip


def _on_gpu(engine: Engine, request: Request, gpu: Gpu, budget: int, busy: frozenset[str]) -> Iterator[_Target]:
    everyone = tuple(dict.fromkeys(item.vm_id for _, item in gpu.held))
    here = gpu.table.cuts[gpu.cut]
    for step in gpu.table.steps(EMPTY, demand_of(request)):
        if step.cut != gpu.cut or isinstance(here, EqualSizeCut) or not step.choice.mask:
            if step.cut != gpu.cut and len(everyone) <= budget and _movable(engine, everyone, busy):
                yield _Target(everyone, float(sum(t.size for t, _ in gpu.held)) + 0.5, (gpu,), 0)
            continue
        mask = step.choice.mask
        leavers = tuple(item.vm_id for taken, item in gpu.held if mask >> taken.start & ((1 << taken.size) - 1))
        leavers = leavers or _sharers(gpu)
        if leavers and len(leavers) <= budget and _movable(engine, leavers, busy):
            size = sum(taken.size for taken, item in gpu.held if item.vm_id in leavers)
            fragments = engine.scores.fragments(gpu.table, gpu.cut, gpu.table.states[gpu.state][1])
            yield _Target(leavers, size - fragments / (gpu.table.total_mib * 2), (gpu,), mask)


def _sharers(gpu: Gpu) -> tuple[str, ...]:
    """VMs on shapes of which a GPU has one only: they can be in the way without sharing a slot."""
    return tuple(item.vm_id for taken, item in gpu.held if "+" in taken.shape)


def _on_host(engine: Engine, request: Request, host: Host, budget: int, busy: frozenset[str]) -> Iterator[_Target]:
    board = engine.fleet.boards[host.board].cut
    if request.profile not in board.shapes:
        return
    for choice in board.choices(host.blocked, request.profile):
        gpus = tuple(gpu for gpu in host.gpus if choice.mask >> gpu.position & 1)
        leavers = tuple(dict.fromkeys(item.vm_id for gpu in gpus for _, item in gpu.held))
        if leavers and len(leavers) <= budget and _movable(engine, leavers, busy):
            cost = float(sum(len(engine.vms[vm_id].gpus) for vm_id in leavers))
            yield _Target(leavers, cost, gpus, 0)
