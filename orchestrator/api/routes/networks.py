# SPDX-License-Identifier: Apache-2.0
"""/v1/networks"""

from __future__ import annotations

from fastapi import APIRouter

from orchestrator.api.paging import PagingOf
from orchestrator.api.schemas.base import NameInPath
from orchestrator.api.schemas.networks import AddNetworkBody, NetworkAnswer
from orchestrator.api.services import ServicesOf

router = APIRouter(prefix="/networks", tags=["networks"])


@router.post("", status_code=201)
def add(body: AddNetworkBody, services: ServicesOf) -> NetworkAnswer:
    """Add a NAT network; hosts get it when a VM needs it."""
    return NetworkAnswer.of(services.networks.add(body.name, body.subnet))


@router.get("")
def list_all(services: ServicesOf, paging: PagingOf) -> list[NetworkAnswer]:
    """Networks by name."""
    return [NetworkAnswer.of(found) for found in paging.cut(services.networks.list(), lambda found: (found.name,))]


@router.get("/{name}")
def get(name: NameInPath, services: ServicesOf) -> NetworkAnswer:
    """One network."""
    return NetworkAnswer.of(services.networks.get(name))
