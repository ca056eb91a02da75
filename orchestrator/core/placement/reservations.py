# SPDX-License-Identifier: Apache-2.0
"""Room kept for a tenant: placeholders that hold slots, CPU and memory until a VM of the tenant takes one over."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.core.placement.engine import Engine, Plan, demand_of
from orchestrator.core.placement.trial import Trial
from orchestrator.core.placement.views import Request

_PREFIX = "reservation:"


def reserve(engine: Engine, name: str, example: Request, count: int) -> int:
    """Keep room for ``count`` VMs like ``example``; how many there was room for (all of them, or fewer)."""
    for number in range(count):
        placeholder = replace(example, vm_id=f"{_PREFIX}{name}:{number}", migratable=True)
        plan = engine.plan(placeholder)
        if plan is None:
            return number
        engine.take(placeholder, plan)
    return count


def plan_reserved(engine: Engine, request: Request) -> tuple[str, Plan] | None:
    """A placeholder of the tenant that the request can take over, given back already, and the plan in its place.

    None, with nothing changed, when the tenant has none that is large enough.
    """
    for vm_id, held in engine.vms.items():
        kept = held.request
        if not vm_id.startswith(_PREFIX) or kept.tenant != request.tenant or demand_of(kept) != demand_of(request):
            continue
        if kept.vcpus >= request.vcpus and kept.memory_mib >= request.memory_mib:
            trial = Trial(engine)
            trial.release(vm_id)
            plan = engine.plan(replace(request, host=held.host.view.host_id))
            if plan is not None:
                return vm_id, plan
            trial.undo()
    return None
