# SPDX-License-Identifier: Apache-2.0
"""What the routes need behind them, and how they get it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Query
from starlette.applications import Starlette
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp

from orchestrator.api.certificate import ServedCertificate
from orchestrator.api.limits import Activity
from orchestrator.api.loopback import Loopback
from orchestrator.api.use_cases import Services
from orchestrator.core.labels import MAX_SELECTOR, Selector, parse_selector
from orchestrator.ports.timers import TimerHealth


@dataclass
class Process:
    """The server process as the API may speak of it."""

    started_at: float
    idle_seconds: float | None
    """After how long without anything to do it ends; None: never."""
    activity: Activity
    timers: Callable[[], tuple[TimerHealth, ...]] = tuple
    """What is done again and again in it."""
    certificate: ServedCertificate | None = None
    """None: it does not listen on the network."""
    backed_up_at: Callable[[], float | None] = lambda: None
    """When the last backup was made, seconds since the epoch; 0: never; None: that is not this program's to do."""
    leaving: Callable[[], object] = lambda: None
    """Called when it begins to end."""
    pages: Callable[[Starlette, Loopback], ASGIApp] | None = None
    """Puts pages for browsers beside the API; None: there are none."""
    stopping: bool = False
    """Set once: long waits end, no new ones begin, the process ends."""


# Dependencies are coroutines: FastAPI sends every other function through a thread, twice for each request.
async def _services(connection: HTTPConnection) -> Services:
    services: Services = connection.app.state.services
    return services


async def _process(connection: HTTPConnection) -> Process:
    process: Process = connection.app.state.process
    return process


ServicesOf = Annotated[Services, Depends(_services)]
ProcessOf = Annotated[Process, Depends(_process)]

# Whether the caller belongs to the tenant is checked before any route runs (api/auth.py).
TenantOf = Annotated[str, Query(alias="tenant", max_length=255, description="Whose it is")]
OfModel = Annotated[
    str | None, Query(max_length=255, description="Only GPUs of this model: its name, or what several have in theirs")
]
TenantFilter = Annotated[str | None, Query(alias="tenant", max_length=255, description="Only this tenant's")]


async def _selector(
    selector: Annotated[
        str | None, Query(max_length=MAX_SELECTOR, description="Only those whose labels it picks: team=vision,!spare")
    ] = None,
) -> Selector:
    return () if selector is None else parse_selector(selector)


SelectorOf = Annotated[Selector, Depends(_selector)]
"""Of a list: it is empty where all are asked for."""
