# SPDX-License-Identifier: Apache-2.0
"""One decision."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.core.placement.engine import PlacementEngine
from orchestrator.core.placement.reasons import refusal
from orchestrator.core.placement.views import HostView, Placement, Refusal, Request


def place(request: Request, hosts: Iterable[HostView]) -> Placement | Refusal:
    """Where ``request`` goes over that picture of the fleet; see :func:`place_in`."""
    return place_in(PlacementEngine(hosts), request)


def place_in(engine: PlacementEngine, request: Request) -> Placement | Refusal:
    """Where ``request`` goes, or every reason why it fits nowhere. The engine is left as it was.

    The same picture gives the same answer. The caller claims ``part.slots`` of each part under
    ``part.cut`` in one transaction (all claims of a GPU share one cut; a slot has one claim) and, if it
    loses the race, brings the picture up to date and asks again. Slots: ``time_sliced:<MiB>`` 0 to max-1, one per
    vGPU; ``mig`` memory slots of the GPU; ``mixed`` placement units; ``whole`` slot 0 of each GPU.
    """
    plan = engine.plan(request)
    if plan is None:
        return refusal(engine, request)
    placement = engine.take(request, plan)
    engine.release(request.vm_id)
    return placement
