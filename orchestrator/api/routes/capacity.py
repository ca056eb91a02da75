# SPDX-License-Identifier: Apache-2.0
"""/v1/capacity, /v1/explain, /v1/gpu-map"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from orchestrator.api.schemas.capacity import CapacityAnswer, CapacityQuery, ExplainAnswer, ExplainQuery, GpuMapAnswer
from orchestrator.api.services import ServicesOf, TenantOf
from orchestrator.core.tenant import DEFAULT_TENANT

router = APIRouter(tags=["capacity"])

Width = Annotated[int, Query(ge=20, le=1000, description="Columns of the text")]


@router.get("/capacity")
def capacity(services: ServicesOf, query: Annotated[CapacityQuery, Query()]) -> CapacityAnswer:
    """How many more VMs fit, of one profile or of everything that hosts offer."""
    return CapacityAnswer.of(services.capacity.capacity(query.to_question()))


@router.get("/explain")
def explain(
    services: ServicesOf, query: Annotated[ExplainQuery, Query()], tenant: TenantOf = DEFAULT_TENANT
) -> ExplainAnswer:
    """Where a VM would go and why, or why not and what would make it fit."""
    return ExplainAnswer.of(services.capacity.explain(query.to_question(tenant)), query.width)


@router.get("/gpu-map")
def gpu_map(services: ServicesOf, width: Width = 80) -> GpuMapAnswer:
    """Every GPU as its slots, with the VMs in them."""
    return GpuMapAnswer.of(services.capacity.gpu_map(), width)
