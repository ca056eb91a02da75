# SPDX-License-Identifier: Apache-2.0
"""/v1/gpus"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from orchestrator.api.http_answers import started
from orchestrator.api.paging import PagingOf
from orchestrator.api.routes.maintenances import answer as maintenance_answer
from orchestrator.api.schemas.gpus import AcceptGpusBody, GpuAnswer
from orchestrator.api.schemas.maintenances import DefragmentationAnswer, DefragmentBody, MaintenanceAnswer
from orchestrator.api.schemas.operations import StartedAnswer
from orchestrator.api.services import ServicesOf
from orchestrator.core.gpu.pci import parse_pci_address
from orchestrator.services.hosts.gpus import place_of

HostInPath = Annotated[str, Path(description="Name of the host")]
AddressInPath = Annotated[str, Path(description="PCI address, as gpus are listed with")]

router = APIRouter(prefix="/gpus", tags=["gpus"])


@router.get("")
def list_all(
    services: ServicesOf,
    paging: PagingOf,
    host: Annotated[str | None, Query(max_length=255, description="Name of the host")] = None,
) -> list[GpuAnswer]:
    """List GPUs. Of all hosts, or of one, by host and address."""
    after = paging.after(2)
    gpus = services.gpus.list(host, None if after is None else (after[0], after[1]), paging.limit + 1)
    return [GpuAnswer.of(info) for info in paging.page(list(gpus), place_of)]


@router.get("/{host}/{address}")
def get(host: HostInPath, address: AddressInPath, services: ServicesOf) -> GpuAnswer:
    """Get a GPU."""
    return GpuAnswer.of(services.gpus.get(host, parse_pci_address(address)))


@router.post("/defragment", status_code=202)
def defragment(body: DefragmentBody, services: ServicesOf) -> MaintenanceAnswer:
    """Defragment GPUs. Declare that VMs move to other hosts, by legal moves alone, so that GPUs get empty."""
    return maintenance_answer(services, services.defragmentation.declare(body.to_request()))


@router.post("/defragment/plan")
def plan_defragment(body: DefragmentBody, services: ServicesOf) -> DefragmentationAnswer:
    """Plan a defragmentation. Tell which VMs would move and what would fit then; nothing is stored."""
    return DefragmentationAnswer.of(services.defragmentation.plan(body.to_request()))


@router.post("/{host}/accept", status_code=202)
def accept(response: Response, host: HostInPath, body: AcceptGpusBody, services: ServicesOf) -> StartedAnswer:
    """Accept a GPU. Say that the cards of a host are right where they are now; VMs follow cards that were moved."""
    return started(response, services.gpu_cards.accept(host, body.addresses))
