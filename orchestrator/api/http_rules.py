# SPDX-License-Identifier: Apache-2.0
"""What HTTP asks of every resource: HEAD, a true ``Allow``, ``Location`` of what was made, JSON bodies."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final
from urllib.parse import quote

from anyio import CancelScope
from fastapi import Request, Response
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.api.schemas.operations import StartedAnswer
from orchestrator.core.errors import InvalidInput
from orchestrator.services.messages import Started

PREFIX: Final = "/v1"
"""All routes of the versioned API are included below it; a route of HTTP itself knows only the rest of its path."""
FILE_TYPE: Final = "application/octet-stream"
_FILE: Final = re.compile(r"/v1/(?:(?:tenants/[^/]+/)?images|driver-bundles)/[^/]+/content")
_BODIES: Final = frozenset({"POST", "PUT", "PATCH"})


def takes_file(scope: Scope) -> bool:
    """Whether the request's body is a file (api/file_bodies.py); known before its route is."""
    return scope["type"] == "http" and scope["method"] == "PUT" and _FILE.fullmatch(scope["path"]) is not None


def has_body(scope: Scope) -> bool:
    """Whether the request announces one."""
    headers = Headers(scope=scope)
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


async def no_conditional_changes(request: Request) -> None:
    """What nobody compares is not obeyed as if it held.

    :raises InvalidInput: ``request.precondition``
    """
    if request.method != "GET" and "if-match" in request.headers:
        raise InvalidInput(
            "request.precondition",
            "If-Match is not compared with anything here",
            hint="read the object again and send the change without it",
        )


async def json_bodies_only(request: Request) -> None:
    """:raises InvalidInput: ``request.media_type``"""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    wanted = FILE_TYPE if takes_file(request.scope) else "application/json"
    if request.method in _BODIES and has_body(request.scope) and kind != wanted:
        what = "JSON" if wanted == "application/json" else "a file's bytes here"
        raise InvalidInput(
            "request.media_type",
            f"the body is {ascii(kind)[1:-1][:60] or 'of no named type'}, the API takes {what}",
            hint=f"send it with Content-Type: {wanted}",
        )


class AnswerHead:
    """ASGI middleware. HEAD is GET without the body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        begun = CancelScope()

        async def without_body(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)
            if message["type"] == "http.response.start" and "content-length" not in Headers(raw=message["headers"]):
                await send({"type": "http.response.body", "body": b""})
                begun.cancel()  # a stream would go on for nobody

        with begun:
            await self._app({**scope, "method": "GET"}, receive, without_body)


def located(response: Response, *path: str) -> None:
    """What was made is at this path below ``/v1``."""
    response.headers["location"] = "/".join((PREFIX, *(quote(segment, safe="") for segment in path)))


def started(
    response: Response, change: Started, tenants: Collection[str] | None = None, *, made: str | None = None
) -> StartedAnswer:
    """The operation's address is told; where there is none, that of what is there already.

    ``tenants``: whose things the caller may know of; None: everybody's. ``made``: the collection that it is in."""
    if change.operation is not None:
        located(response, "operations", change.operation)
    elif made is not None:
        located(response, made, change.name)
    return StartedAnswer.of(change, tenants)
