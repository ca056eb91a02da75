# SPDX-License-Identifier: Apache-2.0
"""/v1/vms/{name}/suspend, and what becomes of what it keeps"""

from __future__ import annotations

from fastapi import APIRouter, Response

from orchestrator.api.http_answers import started
from orchestrator.api.schemas.base import VmInPath
from orchestrator.api.schemas.operations import StartedAnswer
from orchestrator.api.services import ServicesOf, TenantOf
from orchestrator.core.tenancy.tenant import DEFAULT_TENANT

router = APIRouter(prefix="/vms", tags=["vms"])


@router.post("/{name}/suspend", status_code=202)
def suspend(
    response: Response, name: VmInPath, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT
) -> StartedAnswer:
    """Suspend a VM. Its memory and the state of its vGPUs go to its host's disk; its claims stay."""
    return started(response, services.suspension.suspend(tenant, name))


@router.post("/{name}/resume", status_code=202)
def resume(
    response: Response, name: VmInPath, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT
) -> StartedAnswer:
    """Resume a suspended VM. It goes on where it was; refused where its host has changed too much since."""
    return started(response, services.suspension.resume(tenant, name))


@router.post("/{name}/discard-suspended", status_code=202)
def discard_suspended(
    response: Response, name: VmInPath, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT
) -> StartedAnswer:
    """Discard what a suspended VM had in memory. It starts from its disk then, as after a power cut."""
    return started(response, services.suspension.discard(tenant, name))
