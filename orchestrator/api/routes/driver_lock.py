# SPDX-License-Identifier: Apache-2.0
"""/v1/driver-lock and /v1/driver-check"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from orchestrator.api.schemas.drivers import DriverCheckAnswer, DriverLockAnswer
from orchestrator.api.services import ServicesOf
from orchestrator.catalogue.driver_lock_file import DriverLockForm

router = APIRouter(tags=["drivers"])

IfEveryHostHad = Annotated[
    str | None, Query(max_length=40, description="Judge VMs as if every host had this driver: who forbids an upgrade")
]


@router.get("/driver-lock")
def get(services: ServicesOf) -> DriverLockAnswer:
    """Get the driver lock. The drivers that the site means to have."""
    return DriverLockAnswer.of(services.driver_locks.get())


@router.put("/driver-lock")
def put(body: DriverLockForm, services: ServicesOf) -> DriverLockAnswer:
    """Put the driver lock. Lock other versions; what does not go together is refused. No host is touched."""
    return DriverLockAnswer.of(services.driver_locks.apply(body.to_core()))


@router.get("/driver-check")
def check(services: ServicesOf, host_driver: IfEveryHostHad = None) -> DriverCheckAnswer:
    """Check hosts and VMs against the driver lock. Every host and VM, as last seen, against the lock and the tables."""
    return DriverCheckAnswer.of(services.driver_locks.check(host_driver))
