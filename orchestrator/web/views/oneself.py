# SPDX-License-Identifier: Apache-2.0
"""The page of who reads: as whom the server knows them, what they may do where, and which tokens are their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from orchestrator.core.tenancy.tenant import token_actor
from orchestrator.web.login import Page
from orchestrator.web.rendering import address
from orchestrator.web.views.acts import RefusedAct, render_acts
from orchestrator.web.views.list_acts import LIST_ACTS
from orchestrator.web.views.lists import Row, carry_out_in_list, unplaced


async def oneself(request: Request) -> Response:
    """``GET /web/me``: as whom the server knows the reader, what that one may do where, and which tokens are its own"""
    return await _oneself(request, None)


async def _oneself(request: Request, refused: RefusedAct | None) -> Response:
    caller = await request.state.api.get("/v1/whoami")
    tokens = [token async for token in _own_tokens(request, caller)]
    values = {
        "title": "You",
        "caller": caller,
        "tokens": tokens,
        "acts": LIST_ACTS["tokens"],
        "unplaced": unplaced(refused, (LIST_ACTS["tokens"], [*tokens, {}])),
    }
    return render_acts(request, "me.html", values, refused)


async def _own_tokens(request: Request, caller: Any) -> AsyncIterator[Row]:
    """Those not revoked that the reader made or is known by, of the places where it may see them."""
    may, actor = request.state.reader.may, caller["actor"]
    for place in dict.fromkeys(grant["tenant"] for grant in caller["grants"]):
        for token in await request.state.api.get("/v1/tokens", tenant=place) if may("GET /v1/tokens", place) else ():
            if token["revoked_at"] is None and actor in {token["made_by"], token_actor(token["id"])}:
                yield {**token, "token_id": token["id"]}


async def act_of_oneself(request: Request) -> Response:
    """``POST /web/me/tokens/{act}``: of one's tokens"""
    return await carry_out_in_list(request, "tokens", request.path_params["act"], _oneself, address("me"))


ROUTES: Final[dict[tuple[str, str], Page]] = {
    ("GET", "/web/me"): oneself,
    ("POST", "/web/me/tokens/{act}"): act_of_oneself,
}
