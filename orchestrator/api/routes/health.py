# SPDX-License-Identifier: Apache-2.0
"""/healthz, /readyz and /metrics: for whoever watches this process. They are no part of the versioned API."""

from __future__ import annotations

from functools import partial
from typing import Final

from anyio import move_on_after, to_thread
from fastapi import APIRouter, Depends, Request
from fastapi.responses import PlainTextResponse, Response

from orchestrator.api.auth import authorize_watching
from orchestrator.api.limits import HEALTH_THREADS
from orchestrator.api.metrics import MEDIA_TYPE, Metrics
from orchestrator.api.services import ProcessOf, ServicesOf
from orchestrator.core.units import times
from orchestrator.ports.timers import TimerHealth

router = APIRouter(include_in_schema=False)

READ_S: Final = 5.0
"""How long the database may take to answer one small question."""


@router.get("/healthz")
async def alive() -> PlainTextResponse:
    """The process answers. Says nothing else, so nobody is asked who he is."""
    return PlainTextResponse("alive\n")


@router.get("/readyz")
async def ready(services: ServicesOf, process: ProcessOf) -> PlainTextResponse:
    """The database can be read, what is done again and again goes well, and the server is not about to leave; else 503.
    Below the first line: how long ago each timer's last good round was."""
    read = partial(services.operations.list, unfinished=True, limit=1)
    with move_on_after(READ_S) as reading:
        await to_thread.run_sync(read, limiter=HEALTH_THREADS, abandon_on_cancel=True)
    if reading.cancelled_caught:
        return PlainTextResponse("busy: the database does not answer\n", status_code=503)
    if process.stopping:
        return PlainTextResponse("stopping\n", status_code=503)
    timers = process.timers()
    stalled = any(timer.stalled for timer in timers)
    lines = ["stalled" if stalled else "ready", *(_line(timer) for timer in timers)]
    return PlainTextResponse("".join(f"{line}\n" for line in lines), status_code=503 if stalled else 200)


def _line(timer: TimerHealth) -> str:
    """Without the error: anybody may read this page."""
    return f"{timer.name}: went well {timer.good_ago_s:.0f} s ago, failed {times(timer.failed)}"


@router.get("/metrics", dependencies=[Depends(authorize_watching)])
async def metrics(request: Request) -> Response:
    """For Prometheus; it needs a role in the whole pool."""
    known: Metrics = request.app.state.metrics
    return Response(await to_thread.run_sync(known.text, limiter=HEALTH_THREADS), media_type=MEDIA_TYPE)
