# SPDX-License-Identifier: Apache-2.0
"""Consoles of a VM: its serial one and its screen, and the tickets that open them."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from orchestrator.core.vms.console_session import IDLE_S, LONGEST_S, ConsoleKind
from orchestrator.web.api_calls import ApiCalls, Refused, path_of
from orchestrator.web.forms import form_of
from orchestrator.web.guard import own_origin
from orchestrator.web.login import Page
from orchestrator.web.rendering import render

KEPT_SHOWN: Final = 64 * 1024
"""Bytes of what a serial console wrote before."""
LAYOUTS: Final = {"us": "US", "gb": "UK", "de": "German", "fr": "French"}
"""Of the guest's keyboard, by their names in static/keyboards.js."""
_CONTROLS: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]|[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]"
)
"""ECMA-48 sequences, and control characters but for tabs and ends of lines."""


@dataclass(frozen=True)
class _Kind:
    kind: ConsoleKind
    title: str


_SERIAL: Final = _Kind("serial", "Serial console")
_SCREEN: Final = _Kind("graphical", "Screen")


async def serial(request: Request) -> Response:
    """``GET /web/vms/{tenant}/{name}/console``: below what was printed before."""
    api: ApiCalls = request.state.api
    request.state.style = f" 'nonce-{request.state.nonce}'"  # xterm.js makes style elements
    log: dict[str, Any] = {"kept": "", "kept_refused": None}
    try:
        path = path_of("vms", request.path_params["name"], "console", "log")
        answer = await api.get(path, tenant=request.path_params["tenant"], most=KEPT_SHOWN)
        log["kept"] = without_controls(base64.b64decode(answer["content_base64"]))
    except Refused as refused:
        log["kept_refused"] = refused.problem
    return await _page(request, _SERIAL, log)


async def screen(request: Request) -> Response:
    """``GET /web/vms/{tenant}/{name}/screen``"""
    return await _page(request, _SCREEN, {"layouts": LAYOUTS})


async def _page(request: Request, kind: _Kind, more: Mapping[str, Any]) -> Response:
    api: ApiCalls = request.state.api
    tenant, name = request.path_params["tenant"], request.path_params["name"]
    vm = await api.get(path_of("vms", name), tenant=tenant)
    ends = {"idle_minutes": int(IDLE_S // 60), "longest_hours": int(LONGEST_S // 3600)}
    title = f"{kind.title} of {tenant}/{name}"
    return render(request, "console.html", {"title": title, "vm": vm, "kind": kind.kind, **ends, **more})


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


def without_controls(printed: bytes) -> str:
    """As plain text: what a terminal would obey is left out, as the sequence that ends it may have been cut off."""
    return _CONTROLS.sub("", printed.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n"))


ROUTES: Final[dict[tuple[str, str], Page]] = {
    ("GET", "/web/vms/{tenant}/{name}/console"): serial,
    ("GET", "/web/vms/{tenant}/{name}/screen"): screen,
    ("POST", "/web/vms/{tenant}/{name}/console-tickets"): ticket,
}
