# SPDX-License-Identifier: Apache-2.0
"""/v1/status"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from fastapi import APIRouter

from orchestrator.api.auth import CallerOf
from orchestrator.api.schemas.server import (
    HostCountsAnswer,
    ModelUseAnswer,
    OperationCountsAnswer,
    StatusAnswer,
    TenantCountsAnswer,
    UpgradeCountsAnswer,
)
from orchestrator.api.services import ServicesOf, TenantFilter
from orchestrator.api.use_cases import Services
from orchestrator.core.advice.overview import TenantUse, use_by_model, use_by_tenant
from orchestrator.core.drivers.upgrade import OVER, DriverUpgrade
from orchestrator.core.errors import NotFound
from orchestrator.core.hosts.host import Host
from orchestrator.core.operation import UNFINISHED, OperationState
from orchestrator.core.vms.vm import Vm

_STUCK: Final[tuple[OperationState, ...]] = ("stuck",)
router = APIRouter(prefix="/status", tags=["status"])


@router.get("")
def get(services: ServicesOf, caller: CallerOf, tenant: TenantFilter = None) -> StatusAnswer:
    """Get the status of the site. GPUs, VMs, hosts, operations, findings and upgrades, counted; for a tenant what is
    its own."""
    tenants = caller.visible(tenant)
    watching = tenants is None
    rows = services.capacity.gpu_map() if tenants is None else services.capacity.own_gpu_map(tenants)
    return StatusAnswer(
        hosts=_hosts(info.host for info in services.hosts.list()) if watching else None,
        gpus=tuple(ModelUseAnswer.of(item) for item in use_by_model(rows)),
        tenants=_tenants(services.vms.list(tenants), use_by_tenant(rows)),
        operations=OperationCountsAnswer(
            under_way=services.operations.how_many(states=UNFINISHED, tenants=tenants),
            stuck=services.operations.how_many(states=_STUCK, tenants=tenants),
        ),
        findings=Counter(item.finding.severity for item in services.findings.list(host=None)) if watching else None,
        driver_upgrade=_upgrade(services) if watching else None,
    )


def _hosts(hosts: Iterable[Host]) -> HostCountsAnswer:
    rows = list(hosts)
    return HostCountsAnswer(states=Counter(host.state for host in rows), cordoned=sum(host.cordoned for host in rows))


def _tenants(vms: Iterable[Vm], uses: Mapping[str, TenantUse]) -> tuple[TenantCountsAnswer, ...]:
    states = [(vm.spec.tenant, vm.state) for vm in vms]
    of_tenant = Counter(tenant for tenant, _ in states)
    running = Counter(tenant for tenant, state in states if state == "running")
    nothing = TenantUse(0, 0.0)
    return tuple(
        TenantCountsAnswer(
            tenant=tenant,
            vms=count,
            running=running[tenant],
            gpus=uses.get(tenant, nothing).gpus,
            used=uses.get(tenant, nothing).used,
        )
        for tenant, count in sorted(of_tenant.items())
    )


def _upgrade(services: Services) -> UpgradeCountsAnswer | None:
    try:
        newest: DriverUpgrade = services.driver_upgrades.get()
    except NotFound:
        return None
    if newest.state in OVER:
        return None
    done = sum(host.phase == "done" for host in newest.hosts)
    return UpgradeCountsAnswer(version=newest.version, state=newest.state, done=done, hosts=len(newest.hosts))
