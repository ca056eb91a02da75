# SPDX-License-Identifier: Apache-2.0
"""/v1/capacity, /v1/explain, /v1/gpu-map: all of it for those who watch the pool, for others what is their tenant's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Query

from orchestrator.api.auth import CallerOf
from orchestrator.api.paging import PagingOf, SortedOf, sequence_of
from orchestrator.api.schemas.base import MAX_NAME
from orchestrator.api.schemas.capacity import (
    CapacityAnswer,
    CapacityQuery,
    ExplainQuery,
    ExplanationAnswer,
    GpuMapAnswer,
    RacksAnswer,
)
from orchestrator.api.services import OfModel, ServicesOf, TenantFilter, TenantOf
from orchestrator.api.use_cases import Services
from orchestrator.api.visibility import check_may_name_place
from orchestrator.core.advice.alike import CapacityRow
from orchestrator.core.advice.gpu_map import EVERY_GPU, GpuFilter, GpuUse
from orchestrator.core.errors import InvalidInput
from orchestrator.core.gpu.model import models_meant
from orchestrator.core.tenancy.tenant import DEFAULT_TENANT

router = APIRouter(tags=["capacity"])


def _profile(row: CapacityRow) -> tuple[str]:
    return (row.profile,)


_SORTED_BY: Final[Mapping[str, Callable[[CapacityRow], object]]] = {
    "profile": lambda row: row.profile,
    "fits_now": lambda row: row.fits_now,
}


@router.get("/capacity")
def get(
    services: ServicesOf,
    caller: CallerOf,
    query: Annotated[CapacityQuery, Query()],
    ordered: SortedOf,
    tenant: TenantFilter = None,
) -> CapacityAnswer:
    """Get what fits. How many more VMs fit, of one profile or of everything that hosts offer; how many a tenant
    could create now."""
    tenants = caller.visible(tenant)
    if tenants is not None and len(tenants) > 1:
        raise InvalidInput("tenant.choose", "you belong to several tenants", hint=f"one of {', '.join(tenants)}")
    whose = DEFAULT_TENANT if tenants is None else tenants[0]
    question = query.to_question(whose)
    rows = services.capacity.capacity(question) if tenants is None else services.capacity.room(question, whose)
    if ordered.sort is not None:
        rows = tuple(ordered.arranged(rows, _profile, _SORTED_BY))
    gpus = services.gpu_health.capacity(services.capacity.use()) if tenants is None else None
    return CapacityAnswer.of(rows, gpus)


@router.get("/explain")
def explain(
    services: ServicesOf,
    caller: CallerOf,
    query: Annotated[ExplainQuery, Query()],
    tenant: TenantOf = DEFAULT_TENANT,
) -> ExplanationAnswer:
    """Explain where a VM would go and why, or why not and what would make it fit. For a tenant,
    whether it fits."""
    check_may_name_place(caller, query.host, query.gpu)
    question = query.to_question(tenant)
    if caller.everywhere:
        return ExplanationAnswer.of(services.capacity.explain(question))
    return ExplanationAnswer.of_tenant(services.capacity.explain_for_tenant(question))


async def _filter(
    host: Annotated[
        str | None, Query(max_length=MAX_NAME, description="Only GPUs of this host; for who runs the pool")
    ] = None,
    use: Annotated[GpuUse | None, Query(description="Only GPUs of which so much is claimed")] = None,
    rack: Annotated[
        str | None,
        Query(max_length=MAX_NAME, description="Only GPUs of hosts with this label 'rack'; for who runs the pool"),
    ] = None,
) -> GpuFilter:
    return GpuFilter(host, None, use, rack)


@router.get("/gpu-map")
def gpu_map(
    services: ServicesOf,
    caller: CallerOf,
    paging: PagingOf,
    only: Annotated[GpuFilter, Depends(_filter)],
    model: OfModel = None,
    tenant: TenantFilter = None,
) -> GpuMapAnswer:
    """Get the map of GPUs. GPUs as their slots, with the VMs in them, by host; for a tenant, the GPUs that its VMs
    are on.

    :raises NotFound: ``gpu.model_unknown``
    """
    check_may_name_place(caller, only.host, only.rack)
    tenants, after = caller.visible(tenant), paging.after(2)
    if tenants is None:
        only = _of_models(services, only, model)
        of_host = None if after is None else (after[0], after[1])
        rows = services.capacity.gpu_map(of_host, paging.limit + 1, only)
        if only.host is not None and not rows:
            services.hosts.get(only.host)
    else:
        own = services.capacity.own_gpu_map(tenants)
        only = replace(only, models=models_meant(model, (row.model for row in own)))
        rows = tuple(filter(only.picks, own if after is None else own[_place_of(after[1]) :]))

    def how_many() -> int:
        return services.capacity.how_many_gpus(only) if tenants is None else sum(map(only.picks, own))

    page = paging.page(list(rows), lambda row: (row.host or "", row.gpu), how_many)
    return GpuMapAnswer.of(page, services.readings.of_gpus({row.host for row in page if row.host is not None}))


@router.get("/gpu-map/racks")
def gpu_racks(services: ServicesOf, model: OfModel = None) -> RacksAnswer:
    """Get the map's overview. All hosts by rack (their label 'rack'), and how much of each one's GPUs is used.

    :raises NotFound: ``gpu.model_unknown``
    """
    return RacksAnswer.of(services.capacity.racks(_of_models(services, EVERY_GPU, model)))


def _of_models(services: Services, only: GpuFilter, model: str | None) -> GpuFilter:
    """:raises NotFound: ``gpu.model_unknown``"""
    if model is None:
        return only
    return replace(only, models=models_meant(model, services.capacity.use().models))


def _place_of(counted: str) -> int:
    """The number of ``GPU 7``, as a tenant sees it. :raises InvalidInput: ``request.cursor``"""
    return sequence_of(counted.removeprefix("GPU "))
