# SPDX-License-Identifier: Apache-2.0
"""Operations: the list, one with its steps, and its ways out."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from orchestrator.core.errors import InvalidInput
from orchestrator.core.operation import FINISHED
from orchestrator.web.api_calls import ApiCalls, Refused, path_of
from orchestrator.web.live import stream_of
from orchestrator.web.login import Page
from orchestrator.web.rendering import address, render
from orchestrator.web.views.acts import Form, RefusedAct, carry_out, confirmed, render_acts
from orchestrator.web.views.paging import list_page

OPERATIONS_ON_A_PAGE: Final = 30
_FILTERS: Final = ("tenant", "state", "kind", "subject")
_WAYS_OUT: Final = frozenset({"cancel", "retry", "abandon"})


async def operations(request: Request) -> Response:
    """``GET /web/operations``"""
    page = await list_page(request, "/v1/operations", _FILTERS, limit=OPERATIONS_ON_A_PAGE)
    stream = stream_of("operation", tenant=page.filters["tenant"])
    return render(request, "operations.html", {"title": "Operations", "page": page, "stream": stream}, page.status)


async def operation(request: Request) -> Response:
    """``GET /web/operations/{id}``"""
    return await _operation(request, None)


async def _operation(request: Request, refused: RefusedAct | None) -> Response:
    api: ApiCalls = request.state.api
    shown = await api.get(path_of("operations", request.path_params["id"]))
    over = shown["state"] in FINISHED
    stream = None if over else stream_of("operation", "step", names=[shown["id"]])
    values = {"title": f"Operation {shown['id']}", "operation": shown, "over": over, "stream": stream}
    return render_acts(request, "operation.html", values, refused)


async def take_way_out(request: Request) -> Response:
    """``POST /web/operations/{id}/{way}``: cancel, retry, abandon"""

    async def change(api: ApiCalls, form: Form) -> Any:
        if way not in _WAYS_OUT:
            raise Refused.of(InvalidInput("request.method", "no such way out", hint="cancel, retry or abandon it"))
        if way == "abandon":
            confirmed(form, "abandon")
        return await api.change("POST", path_of("operations", number, way), key=form.get("key"))

    number, way = request.path_params["id"], request.path_params["way"]
    return await carry_out(request, way, change, _operation, address("operations", number))


ROUTES: Final[dict[tuple[str, str], Page]] = {
    ("GET", "/web/operations"): operations,
    ("GET", "/web/operations/{id}"): operation,
    ("POST", "/web/operations/{id}/{way}"): take_way_out,
}
