# SPDX-License-Identifier: Apache-2.0
"""/healthz, /readyz and /metrics: for whoever watches this process. They are no part of the versioned API."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request
from fastapi.responses import PlainTextResponse, Response

from orchestrator.api.auth import authorize_watching
from orchestrator.api.metrics import MEDIA_TYPE, Metrics
from orchestrator.api.services import ProcessOf, ServicesOf

router = APIRouter(include_in_schema=False)


@router.get("/healthz")
async def alive() -> PlainTextResponse:
    """The process answers. Says nothing else, so nobody is asked who he is."""
    return PlainTextResponse("alive\n")


@router.get("/readyz")
def ready(services: ServicesOf, process: ProcessOf) -> PlainTextResponse:
    """The database can be read and the server is not about to leave; 503 while it leaves."""
    services.operations.list(unfinished=True, limit=1)
    if process.stopping:
        return PlainTextResponse("stopping\n", status_code=503)
    return PlainTextResponse("ready\n")


@router.get("/metrics", dependencies=[Depends(authorize_watching)])
def metrics(request: Request) -> Response:
    """For Prometheus; it needs a role in the whole pool."""
    known: Metrics = request.app.state.metrics
    return Response(known.text(), media_type=MEDIA_TYPE)
