# SPDX-License-Identifier: Apache-2.0
"""/v1/server"""

from __future__ import annotations

import os
from typing import Final

from fastapi import APIRouter

from orchestrator.api.auth import CallerOf
from orchestrator.api.permissions import may_operate
from orchestrator.api.schemas.base import moment
from orchestrator.api.schemas.server import ServerAnswer, StopServerBody
from orchestrator.api.services import ProcessOf, ServicesOf
from orchestrator.api.use_cases import Services
from orchestrator.client import version
from orchestrator.core.errors import Conflict

router = APIRouter(prefix="/server", tags=["server"])

_COUNTED: Final = 1000


def running_operations(services: Services, tenants: tuple[str, ...] | None = None) -> int:
    """How many operations of these tenants (None: of all) are not finished; counts to 1000."""
    return len(services.operations.list(unfinished=True, limit=_COUNTED, tenants=tenants))


@router.get("")
def get(services: ServicesOf, process: ProcessOf, caller: CallerOf) -> ServerAnswer:
    """Get the server. The process that answers. What is of its machine, operators alone are told."""
    operates = may_operate(caller)
    served = process.certificate if operates else None
    return ServerAnswer(
        version=version.VERSION,
        pid=os.getpid() if operates else None,
        started_at=moment(process.started_at) if operates else None,
        running_operations=running_operations(services, caller.tenants),
        stops_after_idle_seconds=process.idle_seconds if operates else None,
        certificate_ends_at=moment(served.ends_at) if served is not None else None,
        certificate_refused=served.refused if served is not None else None,
        warnings=[f"{timer.name}: {timer.error}" for timer in process.timers() if timer.error] if operates else [],
    )


@router.post("/stop", status_code=202)
def stop(body: StopServerBody, services: ServicesOf, process: ProcessOf) -> None:
    """Stop the server. End the process; running operations are parked after their current step and taken up by the
    next one."""
    running = running_operations(services)
    if body.only_idle and running:
        raise Conflict("server.busy", f"{running} operations are running", hint="wait for them or stop it anyway")
    process.stopping = True
