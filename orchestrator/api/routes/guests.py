# SPDX-License-Identifier: Apache-2.0
"""/v1/vms/{name}/provision"""

from __future__ import annotations

from fastapi import APIRouter, Response

from orchestrator.api.http_answers import started
from orchestrator.api.schemas.base import VmInPath
from orchestrator.api.schemas.guests import ProvisioningAnswer, ProvisionVmBody
from orchestrator.api.schemas.operations import StartedAnswer
from orchestrator.api.services import ServicesOf, TenantOf
from orchestrator.core.tenancy.tenant import DEFAULT_TENANT

router = APIRouter(prefix="/vms", tags=["vms"])


@router.post("/{name}/provision", status_code=202)
def provision(
    response: Response, name: VmInPath, body: ProvisionVmBody, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT
) -> StartedAnswer:
    """Provision a VM's guest. Roles are run in it; a second time changes nothing there."""
    change = services.guests.provision(
        tenant, name, body.roles, new_host_key=body.new_host_key, settings=body.settings, secrets=body.secrets
    )
    return started(response, change)


@router.get("/{name}/provision")
def provisioned(name: VmInPath, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT) -> ProvisioningAnswer:
    """Get what a VM's guest was provisioned with. And what the guest said of itself."""
    return ProvisioningAnswer.of(services.guests.get(tenant, name), services.guests.licence(tenant, name))
