# SPDX-License-Identifier: Apache-2.0
"""/v1/maintenances"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from orchestrator.api.schemas.maintenances import MaintenanceAnswer, MaintenanceCountsAnswer
from orchestrator.api.services import ServicesOf
from orchestrator.core.maintenance.maintenance import Maintenance

router = APIRouter(prefix="/maintenances", tags=["maintenances"])

IdInPath = Annotated[
    str,
    Path(
        alias="id",
        max_length=40,
        description="Its id, or how that begins. newest: the one that was declared last; of a change the only one that"
        " can be changed so.",
    ),
]


def answer(services: ServicesOf, maintenance: Maintenance) -> MaintenanceAnswer:
    """As it is now."""
    return MaintenanceAnswer.of(maintenance, services.maintenances.now(maintenance))


@router.get("")
def list_maintenances(services: ServicesOf) -> tuple[MaintenanceCountsAnswer, ...]:
    """List maintenances. The newest 100, the newest first."""
    return tuple(map(MaintenanceCountsAnswer.of, services.maintenances.list()))


@router.get("/{id}")
def get(maintenance_id: IdInPath, services: ServicesOf) -> MaintenanceAnswer:
    """Get a maintenance, with how far each host is."""
    return answer(services, services.maintenances.get(maintenance_id))


@router.post("/{id}/pause")
def pause(maintenance_id: IdInPath, services: ServicesOf) -> MaintenanceAnswer:
    """Pause a maintenance. Begin no further host."""
    return answer(services, services.maintenances.pause(maintenance_id))


@router.post("/{id}/resume")
def resume(maintenance_id: IdInPath, services: ServicesOf) -> MaintenanceAnswer:
    """Resume a maintenance. Go on after a pause or a halt; the failures so far are forgiven."""
    return answer(services, services.maintenances.resume(maintenance_id))


@router.post("/{id}/cancel")
def cancel(maintenance_id: IdInPath, services: ServicesOf) -> MaintenanceAnswer:
    """Cancel a maintenance. Begin no further host, ever; what has begun ends."""
    return answer(services, services.maintenances.cancel(maintenance_id))
