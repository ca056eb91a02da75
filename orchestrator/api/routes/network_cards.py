# SPDX-License-Identifier: Apache-2.0
"""/v1/vms/{name}/networks"""

from __future__ import annotations

from fastapi import APIRouter, Response
from pydantic import Field

from orchestrator.api.auth import CallerOf
from orchestrator.api.http_answers import started
from orchestrator.api.schemas.base import Name, NameInPath
from orchestrator.api.schemas.operations import StartedAnswer
from orchestrator.api.services import ServicesOf, TenantOf
from orchestrator.catalogue.described import StrictForm
from orchestrator.core.tenancy.tenant import DEFAULT_TENANT


class AttachNetworkBody(StrictForm, example={"network": "inner"}):
    """Which network a VM gets a card on."""

    network: Name
    """Its name: one of the tenant's, or one of the site that is shared."""
    address: str | None = Field(default=None, max_length=64)
    """Of one of kind ovn; null: a free one."""


router = APIRouter(prefix="/vms", tags=["networks"])


@router.post("/{name}/networks", status_code=202)
def attach(
    response: Response,
    name: NameInPath,
    body: AttachNetworkBody,
    services: ServicesOf,
    caller: CallerOf,
    tenant: TenantOf = DEFAULT_TENANT,
) -> StartedAnswer:
    """Attach a network to a VM, which may run. It gets one more network card."""
    return started(response, services.network_cards.attach(tenant, name, body.network, body.address), caller.tenants)


@router.delete("/{name}/networks/{network}", status_code=202)
def detach(
    response: Response,
    name: NameInPath,
    network: NameInPath,
    services: ServicesOf,
    caller: CallerOf,
    tenant: TenantOf = DEFAULT_TENANT,
) -> StartedAnswer:
    """Detach a network from a VM, which may run. Of its network cards the last one goes."""
    return started(response, services.network_cards.detach(tenant, name, network), caller.tenants)
