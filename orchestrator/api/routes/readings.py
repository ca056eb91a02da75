# SPDX-License-Identifier: Apache-2.0
"""/v1/readings"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from orchestrator.api.schemas.base import MAX_NAME, VmInPath
from orchestrator.api.schemas.readings import HistoryOf, HostReadingsAnswer, VmReadingsAnswer
from orchestrator.api.services import ServicesOf, TenantOf
from orchestrator.core.readings.quantities import SubjectKind
from orchestrator.core.tenancy.tenant import DEFAULT_TENANT

HostInPath = Annotated[str, Path(description="Name of the host")]
OfGpu = Annotated[
    str | None, Query(max_length=MAX_NAME, description="Only of the GPU with this PCI address, and what lies on it")
]
OfKind = Annotated[SubjectKind | None, Query(description="Only of these")]
WithHistory = Annotated[bool, Query(alias="history", description="With the last five minutes of what is charted")]

router = APIRouter(prefix="/readings", tags=["readings"])


@router.get("/hosts/{host}")
def of_host(
    host: HostInPath, services: ServicesOf, gpu: OfGpu = None, kind: OfKind = None, history: WithHistory = False
) -> HostReadingsAnswer:
    """Get a host's readings. What its GPUs, GPU instances, vGPUs and VMs do now; nothing that is older than 30 s."""
    readings = services.readings.of_host(host).only(gpu, kind)
    return HostReadingsAnswer.of(readings, _history(services, host, history=history))


@router.get("/vms/{name}")
def of_vm(
    name: VmInPath, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT, history: WithHistory = False
) -> VmReadingsAnswer:
    """Get a VM's readings. What it and its vGPUs do now; nothing that is older than 30 s."""
    readings = services.readings.of_vm(tenant, name)
    return VmReadingsAnswer.of(readings, _history(services, readings.vm.host, history=history))


def _history(services: ServicesOf, host: str, *, history: bool) -> HistoryOf:
    return services.readings.history(host) if history else lambda _: None
