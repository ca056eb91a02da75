# SPDX-License-Identifier: Apache-2.0
"""One decision over a picture of the fleet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from orchestrator.core.placement.engine import PlacementEngine
from orchestrator.core.placement.quota import Quota
from orchestrator.core.placement.reasons import refusal
from orchestrator.core.placement.views import HostView, Placement, Refusal, Request


def place(
    request: Request, hosts: Iterable[HostView], quotas: Mapping[str, Quota] | None = None
) -> Placement | Refusal:
    """Where ``request`` goes, or every reason why it fits nowhere.

    Pure: the same picture gives the same answer. The caller claims ``part.slots`` of each part under
    ``part.cut`` in one transaction (all claims of a GPU share one cut; a slot has one claim) and, if it
    loses the race, takes a new picture and asks again. Slots: ``time_sliced:<MiB>`` 0 to max-1, one per
    vGPU; ``mig`` memory slots of the GPU; ``mixed`` placement units; ``whole`` slot 0 of each GPU.
    """
    engine = PlacementEngine(hosts, quotas=dict(quotas or {}))
    plan = None if engine.usage.refuses(request) else engine.plan(request)
    return refusal(engine, request) if plan is None else engine.take(request, plan)
