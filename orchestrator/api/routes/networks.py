# SPDX-License-Identifier: Apache-2.0
"""/v1/networks of the site, /v1/tenants/{tenant}/networks of a tenant"""

from __future__ import annotations

from fastapi import APIRouter, Response

from orchestrator.api.auth import CallerOf
from orchestrator.api.http_answers import located
from orchestrator.api.paging import PagingOf
from orchestrator.api.permissions import may_operate
from orchestrator.api.schemas.base import DescribeBody, NameInPath, TenantInPath
from orchestrator.api.schemas.networks import AddNetworkBody, AddSiteNetworkBody, NetworkAnswer
from orchestrator.api.services import SelectorOf, ServicesOf, TenantFilter
from orchestrator.core.labels import selects

router = APIRouter(prefix="/networks", tags=["networks"])
of_tenant = APIRouter(prefix="/tenants/{tenant}/networks", tags=["networks"])


@router.post("", status_code=201)
def add(response: Response, body: AddSiteNetworkBody, services: ServicesOf) -> NetworkAnswer:
    """Add a network. Create a NAT network of the site, shared with every tenant; or take a bridge of hosts, shared
    or for one tenant.

    Hosts get a NAT network when a VM needs it. A bridge is theirs: a host without it takes no VM of that network.
    """
    located(response, "networks", body.name)
    uplink = body.uplink()
    if uplink is None:
        return NetworkAnswer.of(services.networks.add(body.name, body.subnet))
    return NetworkAnswer.of(services.networks.add_bridged(body.name, uplink, tuple(body.dhcp_servers), body.tenant))


@router.get("")
def list_all(
    services: ServicesOf, caller: CallerOf, paging: PagingOf, selector: SelectorOf, tenant: TenantFilter = None
) -> list[NetworkAnswer]:
    """List networks. Those that the caller may put VMs on: the shared ones by name, then by tenant."""
    usable = services.networks.list(caller.visible(tenant))
    selected = (network for network in usable if selects(selector, network.about.labels))
    return [
        NetworkAnswer.of(network)
        for network in paging.cut(selected, lambda network: (network.tenant or "", network.short))
    ]


@router.get("/{name}")
def get(name: NameInPath, services: ServicesOf, caller: CallerOf) -> NetworkAnswer:
    """Get a network."""
    return NetworkAnswer.of(services.networks.get(name, everybody=caller.tenants is None))


@router.patch("/{name}")
def describe(name: NameInPath, body: DescribeBody, services: ServicesOf) -> NetworkAnswer:
    """Describe a network. Set description and labels of a network of the site; those not named stay."""
    return NetworkAnswer.of(services.networks.describe(name, None, body.description, body.labels))


@router.delete("/{name}", status_code=204)
def delete(name: NameInPath, services: ServicesOf) -> None:
    """Delete a network of the site that no VM is on."""
    services.networks.delete(name)


@router.post("/{name}/share")
def share(name: NameInPath, services: ServicesOf) -> NetworkAnswer:
    """Share a network. Let tenants put VMs on a network of the site."""
    return NetworkAnswer.of(services.networks.share(name, shared=True))


@router.post("/{name}/unshare")
def unshare(name: NameInPath, services: ServicesOf) -> NetworkAnswer:
    """Unshare a network. Let no tenant put more VMs on a network of the site; those that are there stay."""
    return NetworkAnswer.of(services.networks.share(name, shared=False))


@of_tenant.post("", status_code=201)
def create(
    response: Response, tenant: TenantInPath, body: AddNetworkBody, services: ServicesOf, caller: CallerOf
) -> NetworkAnswer:
    """Create a tenant's network. A NAT network of its own, whose VMs reach each other there.
    Operators alone choose a subnet outside the site's range for tenants."""
    located(response, "tenants", tenant, "networks", body.name)
    return NetworkAnswer.of(services.networks.add(body.name, body.subnet, tenant, operator=may_operate(caller)))


@of_tenant.get("/{name}")
def get_of_tenant(tenant: TenantInPath, name: NameInPath, services: ServicesOf) -> NetworkAnswer:
    """Get a tenant's network. What the tenant calls so: of its own, or shared."""
    return NetworkAnswer.of(services.networks.usable(tenant, name))


@of_tenant.patch("/{name}")
def describe_of_tenant(
    tenant: TenantInPath, name: NameInPath, body: DescribeBody, services: ServicesOf
) -> NetworkAnswer:
    """Describe a tenant's network. Set description and labels of a network of the tenant's own; those not named
    stay."""
    return NetworkAnswer.of(services.networks.describe(name, tenant, body.description, body.labels))


@of_tenant.delete("/{name}", status_code=204)
def delete_of_tenant(tenant: TenantInPath, name: NameInPath, services: ServicesOf, caller: CallerOf) -> None:
    """Delete a tenant's network that no VM is on. One on a bridge of hosts is
    an operator's to take."""
    services.networks.delete(name, tenant, operator=may_operate(caller))
