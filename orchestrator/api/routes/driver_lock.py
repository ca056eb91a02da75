# SPDX-License-Identifier: Apache-2.0
"""/v1/driver-lock and /v1/driver-check"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

from fastapi import APIRouter, Query

from orchestrator.api.paging import SortedPagingOf
from orchestrator.api.schemas.base import MAX_NAME
from orchestrator.api.schemas.drivers import DriverCheckAnswer, DriverLockAnswer, DriverRowAnswer
from orchestrator.api.services import ServicesOf
from orchestrator.catalogue.driver_lock_file import DriverLockForm
from orchestrator.core.drivers.check import Verdict
from orchestrator.services.drivers.locks import EVERY_HOST, Compared

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
    of_hosts = EVERY_HOST if host is None else host
    if paging.sort is None:
        after, most = paging.after(2), paging.limit + 1
        rows = services.driver_locks.check(host_driver, of_hosts, verdict, after=after, most=most)
        page = [DriverRowAnswer.of(row) for _, row in paging.page(rows, _key)]
    else:
        rows = services.driver_locks.check(host_driver, of_hosts, verdict)
        page = [DriverRowAnswer.of(row) for _, row in paging.arranged(rows, _key, _SORTED_BY)]
    return DriverCheckAnswer(rows=tuple(page))


def _key(compared: Compared) -> tuple[str, ...]:
    return compared[0]


def _by(name: str) -> Callable[[Compared], object]:
    return lambda compared: getattr(compared[1], name)


_SORTED_BY: Final = {name: _by(name) for name in DriverRowAnswer.model_fields}
