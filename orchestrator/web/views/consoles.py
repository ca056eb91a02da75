# SPDX-License-Identifier: Apache-2.0
"""Consoles of a VM: the tickets that open them."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from orchestrator.web.api_calls import ApiCalls, Refused, path_of
from orchestrator.web.forms import form_of
from orchestrator.web.guard import own_origin
from orchestrator.web.login import Page


async def ticket(request: Request) -> Response:
    """``POST /web/vms/{tenant}/{name}/console-tickets``: for the page's script, which is told refusals as JSON."""
    api: ApiCalls = request.state.api
    tenant, name = request.path_params["tenant"], request.path_params["name"]
    body = {"kind": (await form_of(request)).get("kind", ""), "origin": own_origin(request)}
    try:
        answer = await api.change("POST", path_of("vms", name, "console-tickets"), body, tenant=tenant)
    except Refused as refused:
        return JSONResponse(refused.problem, refused.status)
    return JSONResponse({"ticket": answer["ticket"]}, 201)


ROUTES: Final[dict[tuple[str, str], Page]] = {
    ("POST", "/web/vms/{tenant}/{name}/console-tickets"): ticket,
}
