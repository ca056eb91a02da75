# SPDX-License-Identifier: Apache-2.0
"""/v1/capacity, /v1/explain, /v1/gpu-map: all of it for those who watch the pool, for others what is their tenant's."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from orchestrator.api.auth import CallerOf
from orchestrator.api.schemas.capacity import CapacityAnswer, CapacityQuery, ExplainAnswer, ExplainQuery, GpuMapAnswer
from orchestrator.api.services import ServicesOf, TenantFilter, TenantOf
from orchestrator.core.errors import InvalidInput
from orchestrator.core.tenant import DEFAULT_TENANT

router = APIRouter(tags=["capacity"])

Width = Annotated[int, Query(ge=20, le=1000, description="Columns of the text")]


@router.get("/capacity")
def capacity(
    services: ServicesOf,
    caller: CallerOf,
    query: Annotated[CapacityQuery, Query()],
    tenant: TenantFilter = None,
) -> CapacityAnswer:
    """How many more VMs fit, of one profile or of everything that hosts offer; how many a tenant could create now."""
    question = query.to_question()
    tenants = caller.visible(tenant)
    if tenants is None:
        return CapacityAnswer.of(services.capacity.capacity(question))
    if len(tenants) > 1:
        raise InvalidInput("tenant.choose", "you belong to several tenants", hint=f"one of {', '.join(tenants)}")
    return CapacityAnswer.of_room(services.capacity.room(question, tenants[0]))


@router.get("/explain")
def explain(
    services: ServicesOf,
    caller: CallerOf,
    query: Annotated[ExplainQuery, Query()],
    tenant: TenantOf = DEFAULT_TENANT,
) -> ExplainAnswer:
    """Where a VM would go and why, or why not and what would make it fit; for a tenant, whether it fits."""
    question = query.to_question(tenant)
    if caller.everywhere:
        return ExplainAnswer.of(services.capacity.explain(question), query.width)
    return ExplainAnswer.of_told(services.capacity.told(question), query.width)


@router.get("/gpu-map")
def gpu_map(services: ServicesOf, caller: CallerOf, width: Width = 80, tenant: TenantFilter = None) -> GpuMapAnswer:
    """Every GPU as its slots, with the VMs in them; for a tenant, the GPUs that its VMs are on."""
    tenants = caller.visible(tenant)
    rows = services.capacity.gpu_map() if tenants is None else services.capacity.own_gpu_map(tenants)
    return GpuMapAnswer.of(rows, width)
