# SPDX-License-Identifier: Apache-2.0
"""/v1/driver-upgrade"""

from __future__ import annotations

from fastapi import APIRouter

from orchestrator.api.routes.maintenances import answer
from orchestrator.api.schemas.drivers import StartDriverUpgradeBody
from orchestrator.api.schemas.maintenances import MaintenanceAnswer
from orchestrator.api.services import ServicesOf

router = APIRouter(prefix="/driver-upgrade", tags=["drivers"])


@router.post("", status_code=202)
def start(body: StartDriverUpgradeBody, services: ServicesOf) -> MaintenanceAnswer:
    """Start a driver upgrade. Bring a driver onto hosts, some at a time; one such upgrade goes on at once."""
    act = services.driver_upgrades.plan if body.dry_run else services.driver_upgrades.start
    return answer(services, act(body.to_request()))
