# SPDX-License-Identifier: Apache-2.0
"""A place for a VM that has to leave some slots: on other GPUs, or on the same GPU beside those slots."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.core.placement.constraints import allows
from orchestrator.core.placement.engine import PlacementPlan, demand_of
from orchestrator.core.placement.fleet import FleetHost, Gpu
from orchestrator.core.placement.state_table import StateStep
from orchestrator.core.placement.views import Request
from tests.bench.placement.moves.engine import MovingEngine


def plan_beside(engine: MovingEngine, request: Request, gpus: Sequence[Gpu], mask: int) -> PlacementPlan | None:
    """The best place off ``gpus``, or on the only one of them outside ``mask`` (0: nowhere on them).

    The VM still holds its old place meanwhile. A plan on the same GPU is for the state after it has left.
    """
    elsewhere = _elsewhere(engine, request, gpus)
    same = _same_gpu(engine, request, gpus[0], mask) if mask else None
    if elsewhere is None or (same is not None and same.score < elsewhere.score):
        return same
    return elsewhere


def _elsewhere(engine: MovingEngine, request: Request, gpus: Sequence[Gpu]) -> PlacementPlan | None:
    avoided = {gpu.number for gpu in gpus}
    masked = {gpu.host.number for gpu in gpus}

    def accept(host: FleetHost, gpu: Gpu | None) -> bool:
        if gpu is None:
            return host.number not in masked
        return gpu.number not in avoided and (not engine.is_filtered(request) or allows(request, host, gpu))

    return engine.plan_among(request, accept)


def _same_gpu(engine: MovingEngine, request: Request, gpu: Gpu, mask: int) -> PlacementPlan | None:
    """Free places now that lie outside ``mask``; the step is made for the state without the VM's old place."""
    table = gpu.table
    cut = table.cuts[gpu.cut]
    held = engine.vms[request.vm_id]
    without = cut.classify(taken for taken, item in gpu.held if item.vm_id != request.vm_id)
    best: PlacementPlan | None = None
    for step in table.steps(gpu.state, demand_of(request)):
        if step.choice.mask and not step.choice.mask & mask and gpu in held.gpus:
            later = next(
                (c for c in cut.choices(without, step.shape) if c.mask == step.choice.mask and step.cut == gpu.cut),
                None,
            )
            score = engine.scores.of_step(table, gpu.state, step)
            if later is not None and (best is None or score < best.score):
                best = PlacementPlan(gpu.host.number, ((gpu.number, StateStep(step.cut, step.shape, later)),), score)
    return best
