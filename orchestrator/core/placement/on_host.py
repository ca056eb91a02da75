# SPDX-License-Identifier: Apache-2.0
"""Places on one host: for a named host, affinity, or several devices in one VM."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from orchestrator.core.geometry.board import other_models
from orchestrator.core.placement.constraints import gpu_obstacles
from orchestrator.core.placement.fleet import FleetHost, Gpu
from orchestrator.core.placement.rankings import Rankings
from orchestrator.core.placement.state_table import Demand, StateStep
from orchestrator.core.placement.views import Request

Found = tuple[float, tuple[tuple[int, StateStep | None], ...]]
"""(score, GPU numbers with the step on each)."""


def plan_on_host(rankings: Rankings, request: Request, host: FleetHost) -> Found | None:
    """The best way to place all devices of a request on a host, one after another; None when they do not fit."""
    demand = Demand(request.profile, request.cut_kinds, request.gpu_models)
    if demand.whole_gpus:
        return _whole(rankings, request, host, demand)
    sides: dict[Hashable, list[Gpu]] = {}
    for gpu in host.gpus:
        sides.setdefault(tuple(need.side(gpu) for need in request.needs), []).append(gpu)
    plans = [_parts(rankings, request, gpus, demand) for gpus in sides.values()]
    return min((plan for plan in plans if plan is not None), key=lambda plan: plan[0], default=None)


class PlansOfHosts:
    """:func:`plan_on_host` for one request on host after host, worked out once for all on which the same is free.

    Good while nothing is placed or given back."""

    def __init__(self, rankings: Rankings, request: Request, *, beside: bool) -> None:
        """``beside``: what is on a GPU may keep the request off it though it has room."""
        self._rankings = rankings
        self._request = request
        self._beside = beside
        self._each = request.judges_empty_gpus or request.whole_gpus > 0
        self._known: dict[Hashable, Found | None] = {}
        """GPUs by their positions."""

    def on(self, host: FleetHost) -> Found | None:
        """As :func:`plan_on_host`."""
        if self._each or host.group is None:
            return plan_on_host(self._rankings, self._request, host)
        key = (host.group.number, tuple([gpu.state if self._open(gpu) else None for gpu in host.gpus]))
        if key not in self._known:
            plan = plan_on_host(self._rankings, self._request, host)
            at = {gpu.number: gpu.position for gpu in host.gpus}
            self._known[key] = None if plan is None else (plan[0], tuple((at[n], step) for n, step in plan[1]))
        known = self._known[key]
        return None if known is None else (known[0], tuple((host.gpus[at].number, step) for at, step in known[1]))

    def _open(self, gpu: Gpu) -> bool:
        return not (self._beside and gpu.held) or next(gpu_obstacles(self._request, gpu), None) is None


def _parts(rankings: Rankings, request: Request, gpus: Sequence[Gpu], demand: Demand) -> Found | None:
    """All devices on some of these GPUs of one host."""
    states = {gpu.number: gpu.state for gpu in gpus}
    busy, total = gpus[0].host.busy if gpus else 0, 0.0
    parts: list[tuple[int, StateStep | None]] = []
    for _ in range(request.count):
        best: tuple[float, int, StateStep] | None = None
        for gpu in gpus:
            if gpu.whole:
                continue
            plan = _on_gpu(rankings, request, gpu, demand, states[gpu.number], busy)
            if plan is not None and (best is None or plan[0] < best[0]):
                best = (plan[0], gpu.number, plan[1])
        if best is None:
            return None
        score, number, step = best
        gpu = rankings.fleet.gpus[number]
        states[number] = rankings.fleet.number_of(gpu.table, step.cut, step.choice.after)
        busy |= 1 << gpu.position
        total += score
        parts.append((number, step))
    return total, tuple(parts)


def _on_gpu(
    rankings: Rankings, request: Request, gpu: Gpu, demand: Demand, state: int, busy: int
) -> tuple[float, StateStep] | None:
    if next(gpu_obstacles(request, gpu), None) is not None:
        return None
    best = rankings.best_step(gpu.table, state, demand)
    if best is None or busy >> gpu.position & 1:
        return best
    board = rankings.fleet.boards[gpu.host.board]
    opening = rankings.scores.of_board(board.cut, board.number, busy, busy | 1 << gpu.position, opens=True)
    return best[0] + opening, best[1]


def _whole(rankings: Rankings, request: Request, host: FleetHost, demand: Demand) -> Found | None:
    if f"gpu:{demand.whole_gpus}" not in rankings.fleet.boards[host.board].cut.shapes:
        return None
    busy, total = host.busy, 0.0
    parts: tuple[tuple[int, StateStep | None], ...] = ()
    for _ in range(request.count):
        best = _one_set(rankings, request, host, demand, busy)
        if best is None:
            return None
        score, busy, gpus = best
        total += score
        parts += tuple((gpu.number, None) for gpu in gpus)
    return total, parts


def _one_set(
    rankings: Rankings, request: Request, host: FleetHost, demand: Demand, busy: int
) -> tuple[float, int, list[Gpu]] | None:
    """(score, busy GPUs then, GPUs taken) of the best set of whole GPUs."""
    board = rankings.fleet.boards[host.board]
    closed = host.closed | sum(1 << gpu.position for gpu in host.gpus if not _serves(request, gpu))
    models = [gpu.table.geometry.model for gpu in host.gpus]
    shape = f"gpu:{demand.whole_gpus}"
    best: tuple[float, int, list[Gpu]] | None = None
    for choice in (
        choice
        for others in other_models(models, demand.gpu_models)
        for choice in board.cut.choices(busy | closed | others, shape)
    ):
        gpus = [gpu for gpu in host.gpus if choice.mask >> gpu.position & 1]
        if any(True for need in request.needs for _ in need.off_set(gpus)):
            continue
        after = busy | choice.mask
        score = rankings.scores.of_board(board.cut, board.number, busy, after, opens=False)
        if best is None or score < best[0]:
            best = (score, after, gpus)
    return best


def _serves(request: Request, gpu: Gpu) -> bool:
    return next(gpu_obstacles(request, gpu), None) is None
