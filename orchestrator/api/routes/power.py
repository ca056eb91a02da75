# SPDX-License-Identifier: Apache-2.0
"""/v1/power"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from orchestrator.api.routes.gpus import AddressInPath, HostInPath
from orchestrator.api.schemas.base import MAX_NAME
from orchestrator.api.schemas.power import GpuCapBody, PowerAnswer, PowerBudgetBody
from orchestrator.api.services import ServicesOf
from orchestrator.core.gpu.pci import parse_pci_address

router = APIRouter(prefix="/power", tags=["gpus"])

HostFilter = Annotated[str | None, Query(max_length=MAX_NAME, description="All GPUs of this host, with a cap or not")]


@router.get("")
def get(services: ServicesOf, host: HostFilter = None) -> PowerAnswer:
    """Get budgets of power. With what their GPUs may take and take now, and GPUs with a cap, or all of a host."""
    return PowerAnswer.of(services.power.report(host))


@router.post("/budgets")
def set_budget(body: PowerBudgetBody, services: ServicesOf) -> PowerAnswer:
    """Set a budget of power. GPUs within it keep to it from then on, as soon as their hosts have answered."""
    services.power.set_budget(body.to_core(), body.watts)
    return PowerAnswer.of(services.power.report())


@router.post("/gpus/{host}/{address}")
def cap(host: HostInPath, address: AddressInPath, body: GpuCapBody, services: ServicesOf) -> PowerAnswer:
    """Cap a GPU's power. It takes no more, whatever budgets leave to it."""
    services.power.set_cap(host, parse_pci_address(address), body.cap_watts)
    return PowerAnswer.of(services.power.report())
