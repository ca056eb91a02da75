# SPDX-License-Identifier: Apache-2.0
"""/v1/driver-upgrade"""

from __future__ import annotations

from fastapi import APIRouter

from orchestrator.api.schemas.drivers import DriverUpgradeAnswer, StartDriverUpgradeBody
from orchestrator.api.services import ServicesOf
from orchestrator.core.drivers.upgrade import DriverUpgrade

router = APIRouter(prefix="/driver-upgrade", tags=["drivers"])


def _answer(services: ServicesOf, upgrade: DriverUpgrade) -> DriverUpgradeAnswer:
    return DriverUpgradeAnswer.of(upgrade, services.driver_upgrades.now(upgrade))


@router.post("", status_code=202)
def start(body: StartDriverUpgradeBody, services: ServicesOf) -> DriverUpgradeAnswer:
    """Start the driver upgrade. Bring a driver onto hosts, some at a time; one such upgrade goes on at once."""
    act = services.driver_upgrades.plan if body.dry_run else services.driver_upgrades.start
    return _answer(services, act(body.to_request()))


@router.get("")
def get(services: ServicesOf) -> DriverUpgradeAnswer:
    """Get the driver upgrade. The newest upgrade, with how far each host is."""
    return _answer(services, services.driver_upgrades.get())


@router.post("/pause")
def pause(services: ServicesOf) -> DriverUpgradeAnswer:
    """Pause the driver upgrade. Begin no further host."""
    return _answer(services, services.driver_upgrades.pause())


@router.post("/resume")
def resume(services: ServicesOf) -> DriverUpgradeAnswer:
    """Resume the driver upgrade. Go on after a pause or a halt; the failures so far are forgiven."""
    return _answer(services, services.driver_upgrades.resume())


@router.post("/abort")
def abort(services: ServicesOf) -> DriverUpgradeAnswer:
    """Abort the driver upgrade. Begin no further host, ever; what has begun ends."""
    return _answer(services, services.driver_upgrades.abort())
