# SPDX-License-Identifier: Apache-2.0
"""/v1/status"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from fastapi import APIRouter

from orchestrator.api.auth import CallerOf
from orchestrator.api.schemas.maintenances import MaintenanceCountsAnswer
from orchestrator.api.schemas.server import (
    HostCountsAnswer,
    ModelUseAnswer,
    OperationCountsAnswer,
    StatusAnswer,
    TenantCountsAnswer,
)
from orchestrator.api.services import ServicesOf, TenantFilter
from orchestrator.core.advice.overview import FleetUse, TenantUse
from orchestrator.core.hosts.host import HostState
from orchestrator.core.operation import UNFINISHED, OperationState
from orchestrator.core.vms.vm import VmState

_STUCK: Final[tuple[OperationState, ...]] = ("stuck",)
router = APIRouter(prefix="/status", tags=["status"])


@router.get("")
def get(services: ServicesOf, caller: CallerOf, tenant: TenantFilter = None) -> StatusAnswer:
    """Get the status of the site. GPUs, VMs, hosts, operations, findings and upgrades, counted; for a tenant what is
    its own."""
    tenants = caller.visible(tenant)
    watching = tenants is None
    capacity = services.capacity
    use = capacity.use() if tenants is None else FleetUse.of(capacity.own_gpu_map(tenants))
    return StatusAnswer(
        hosts=_hosts(services.hosts.counts()) if watching else None,
        gpus=tuple(ModelUseAnswer.of(item) for item in use.by_model()),
        tenants=_tenants(services.capacity.vm_counts(tenants), use.by_tenant()),
        operations=OperationCountsAnswer(
            under_way=services.operations.how_many(states=UNFINISHED, tenants=tenants),
            stuck=services.operations.how_many(states=_STUCK, tenants=tenants),
        ),
        findings=services.findings.by_severity() if watching else None,
        maintenances=tuple(map(MaintenanceCountsAnswer.of, services.maintenances.active())) if watching else None,
    )


def _hosts(counts: Mapping[tuple[HostState, bool], int]) -> HostCountsAnswer:
    states = Counter[HostState]()
    for (state, _), count in counts.items():
        states[state] += count
    cordoned = sum(count for (_, is_cordoned), count in counts.items() if is_cordoned)
    return HostCountsAnswer(states=states, cordoned=cordoned)


def _tenants(
    counts: Mapping[tuple[str, VmState], int], uses: Mapping[str, TenantUse]
) -> tuple[TenantCountsAnswer, ...]:
    of_tenant = Counter[str]()
    for (tenant, _), count in counts.items():
        of_tenant[tenant] += count
    nothing = TenantUse(0, 0.0)
    return tuple(
        TenantCountsAnswer(
            tenant=tenant,
            vms=count,
            running=counts.get((tenant, "running"), 0),
            gpus=uses.get(tenant, nothing).gpus,
            used=uses.get(tenant, nothing).used,
        )
        for tenant, count in sorted(of_tenant.items())
    )
