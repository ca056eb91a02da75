# SPDX-License-Identifier: Apache-2.0
"""/v1/driver-lock and /v1/driver-check"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from orchestrator.api.paging import SortedPagingOf
from orchestrator.api.schemas.base import MAX_NAME
from orchestrator.api.schemas.drivers import DriverCheckAnswer, DriverLockAnswer, DriverRowAnswer
from orchestrator.api.services import ServicesOf
from orchestrator.catalogue.driver_lock_file import DriverLockForm
from orchestrator.core.drivers.check import Verdict

router = APIRouter(tags=["drivers"])

OfHosts = Annotated[
    str | None, Query(max_length=MAX_NAME, description="Only hosts of this name or pattern, like gpu-*, and their VMs")
]
OfVerdict = Annotated[Verdict | None, Query(description="Only what compares so")]
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
def check(
    services: ServicesOf,
    paging: SortedPagingOf,
    host: OfHosts = None,
    verdict: OfVerdict = None,
    host_driver: IfEveryHostHad = None,
) -> DriverCheckAnswer:
    """Check hosts and VMs against the driver lock. Every host and VM, as last seen, against the lock and the tables.

    :raises NotFound: ``host.unknown``"""
    checked = services.driver_locks.check(host_driver, "*" if host is None else host)
    if host is not None and not checked:
        services.hosts.get(host)
    rows = [
        ((name, f"{number:06}"), row)
        for name, compared in checked
        for number, row in enumerate(compared)
        if verdict in {None, row.verdict}
    ]
    answers = paging.answers(DriverRowAnswer, rows, lambda keyed: keyed[0], lambda keyed: DriverRowAnswer.of(keyed[1]))
    return DriverCheckAnswer(rows=tuple(answers))
