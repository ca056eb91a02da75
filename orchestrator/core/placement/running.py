# SPDX-License-Identifier: Apache-2.0
"""Where a VM that runs already can follow: not everything that it could have been placed on at first."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.core.geometry.cut import MIXES, CutKind
from orchestrator.core.placement.engine import PlacementEngine
from orchestrator.core.placement.fleet import Gpu
from orchestrator.core.placement.views import Request


def on_like_gpus(request: Request, gpu: Gpu) -> Request:
    """The request, bound to GPUs of the model it is on, cut in the same way."""
    kinds: tuple[CutKind, ...] = () if gpu.cut < 0 else (gpu.table.cuts[gpu.cut].kind,)
    if set(kinds) & set(MIXES):
        kinds = MIXES
    return replace(request, gpu_models=(gpu.table.geometry.model,), cut_kinds=kinds)


def bind_to_like_gpus(engine: PlacementEngine) -> None:
    """Bind every VM in the engine, before plans are made that move them."""
    for held in engine.vms.values():
        engine.count(held.request, -1)
        held.request = on_like_gpus(held.request, held.gpus[0])
        engine.count(held.request, 1)
