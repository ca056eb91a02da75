# SPDX-License-Identifier: Apache-2.0
"""/v1/gpu-health"""

from __future__ import annotations

from fastapi import APIRouter, Response

from orchestrator.api.http_answers import started
from orchestrator.api.paging import DEFAULT_LIMIT, SortedPagingOf
from orchestrator.api.routes.gpus import AddressInPath, HostInPath
from orchestrator.api.routes.maintenances import answer as maintenance_answer
from orchestrator.api.schemas.gpu_health import GpuHealthAnswer, GpuReasonBody, PoolHealthAnswer
from orchestrator.api.schemas.maintenances import EmptyGpuBody, MaintenanceAnswer
from orchestrator.api.schemas.operations import StartedAnswer
from orchestrator.api.services import ServicesOf
from orchestrator.core.gpu.pci import parse_pci_address

router = APIRouter(prefix="/gpu-health", tags=["gpus"])


@router.get("")
def list_all(services: ServicesOf, paging: SortedPagingOf) -> PoolHealthAnswer:
    """List ill GPUs: a page of them. With how many are in each state, and whether rules may close them."""
    pool = services.gpu_health.all()
    gpus = paging.answers(GpuHealthAnswer, pool.gpus, lambda known: (known.host, known.gpu), GpuHealthAnswer.of)
    return PoolHealthAnswer.of(pool, gpus)


@router.post("/reset-breaker")
def reset_breaker(services: ServicesOf) -> PoolHealthAnswer:
    """Reset the breaker. Rules may close GPUs again."""
    pool = services.gpu_health.reset_breaker()
    return PoolHealthAnswer.of(pool, [GpuHealthAnswer.of(known) for known in pool.gpus[:DEFAULT_LIMIT]])


@router.get("/{host}/{address}")
def get(host: HostInPath, address: AddressInPath, services: ServicesOf) -> GpuHealthAnswer:
    """Get a GPU's health. With all that its host tells of it now."""
    return GpuHealthAnswer.of(services.gpu_health.get(host, parse_pci_address(address)))


@router.post("/{host}/{address}/quarantine")
def quarantine(host: HostInPath, address: AddressInPath, body: GpuReasonBody, services: ServicesOf) -> GpuHealthAnswer:
    """Quarantine a GPU. Nothing new is put on it until it is returned."""
    return GpuHealthAnswer.of(services.gpu_health.quarantine(host, parse_pci_address(address), body.reason))


@router.post("/{host}/{address}/empty", status_code=202)
def empty(host: HostInPath, address: AddressInPath, body: EmptyGpuBody, services: ServicesOf) -> MaintenanceAnswer:
    """Empty a GPU. Close it, and declare that its VMs move to other hosts; the host serves on."""
    gpu = parse_pci_address(address)
    return maintenance_answer(services, services.maintenances.drain(host, body.to_request(), gpu))


@router.post("/{host}/{address}/reset", status_code=202)
def reset(response: Response, host: HostInPath, address: AddressInPath, services: ServicesOf) -> StartedAnswer:
    """Reset a GPU. Close it, reset it and try it; refused while VMs have a place there. If it is well then, it is on
    watch."""
    return started(response, services.gpu_cards.reset(host, parse_pci_address(address)))


@router.post("/{host}/{address}/return")
def give_back(host: HostInPath, address: AddressInPath, body: GpuReasonBody, services: ServicesOf) -> GpuHealthAnswer:
    """Return a GPU. It is placed on again, last for a day; what is told of it now counts no more."""
    return GpuHealthAnswer.of(services.gpu_health.give_back(host, parse_pci_address(address), body.reason))


@router.post("/{host}/{address}/acknowledge")
def acknowledge(host: HostInPath, address: AddressInPath, services: ServicesOf) -> GpuHealthAnswer:
    """Acknowledge a GPU's state. Nobody is alerted to it any more until it changes."""
    return GpuHealthAnswer.of(services.gpu_health.acknowledge(host, parse_pci_address(address)))
