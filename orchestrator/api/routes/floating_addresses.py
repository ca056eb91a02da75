# SPDX-License-Identifier: Apache-2.0
"""/v1/floating-addresses"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response
from pydantic import Field

from orchestrator.api.auth import CallerOf
from orchestrator.api.http_answers import located
from orchestrator.api.paging import SortedPagingOf
from orchestrator.api.schemas.base import AnswerBody, Name
from orchestrator.api.services import ServicesOf, TenantFilter, TenantOf
from orchestrator.catalogue.described import StrictForm
from orchestrator.core.tenancy.tenant import DEFAULT_TENANT
from orchestrator.services.floating_addresses import FloatingInfo

AddressInPath = Annotated[str, Path(max_length=64, description="Floating address")]


class CreateFloatingAddressBody(StrictForm, example={"tenant": "research"}):
    """A floating address. One that the tenant has already is answered as it is."""

    tenant: Name = "default"
    """Whose it is."""
    network: Name | None = None
    """The provider network that it is of; null: the only one."""
    address: str | None = Field(default=None, max_length=64)
    """IPv4; null: a free one."""


class AttachFloatingAddressBody(StrictForm, example={"vm": "train"}):
    """Where it is to lead."""

    vm: Name
    """Name of a VM of the tenant."""
    network: Name | None = None
    """Network of the card of that VM; null: the first that its provider network leads to."""


class FloatingAddressAnswer(AnswerBody, copies=FloatingInfo):
    """An address outside that leads to a VM, and is the tenant's until that gives it back."""


router = APIRouter(prefix="/floating-addresses", tags=["networks"])


@router.post("", status_code=201)
def create(response: Response, body: CreateFloatingAddressBody, services: ServicesOf) -> FloatingAddressAnswer:
    """Create a floating address. It leads nowhere until it is attached."""
    info = services.floating_addresses.create(body.tenant, body.network, body.address)
    located(response, "floating-addresses", info.address)
    return FloatingAddressAnswer.copied(info)


@router.get("")
def list_all(
    services: ServicesOf, caller: CallerOf, paging: SortedPagingOf, tenant: TenantFilter = None
) -> list[FloatingAddressAnswer]:
    """List floating addresses. By tenant and address."""
    known = services.floating_addresses.list(caller.visible(tenant))
    return paging.answers(
        FloatingAddressAnswer, known, lambda info: (info.tenant, info.address), FloatingAddressAnswer.copied
    )


@router.post("/{address}/attach")
def attach(
    address: AddressInPath, body: AttachFloatingAddressBody, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT
) -> FloatingAddressAnswer:
    """Attach a floating address. Lead it to a VM of the tenant, from wherever it led until now."""
    info = services.floating_addresses.attach(tenant, address, body.vm, body.network)
    return FloatingAddressAnswer.copied(info)


@router.post("/{address}/detach")
def detach(address: AddressInPath, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT) -> FloatingAddressAnswer:
    """Detach a floating address. It leads nowhere then, and stays the tenant's."""
    return FloatingAddressAnswer.copied(services.floating_addresses.detach(tenant, address))


@router.delete("/{address}", status_code=204)
def delete(address: AddressInPath, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT) -> None:
    """Delete a floating address that leads nowhere: another tenant may get it."""
    services.floating_addresses.delete(tenant, address)
