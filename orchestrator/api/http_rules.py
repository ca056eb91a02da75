# SPDX-License-Identifier: Apache-2.0
"""What HTTP asks of every resource: HEAD, a true ``Allow``, ``Location`` of what was made, JSON bodies."""

from __future__ import annotations

import json
import re
from typing import Final
from urllib.parse import quote

from anyio import CancelScope
from fastapi import Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.core.errors import InvalidInput

PREFIX: Final = "/v1"
"""All routes of the versioned API are included below it; a route of HTTP itself knows only the rest of its path."""
FILE_TYPE: Final = "application/octet-stream"
_FILE: Final = re.compile(r"/v1/(?:(?:tenants/[^/]+/)?images|driver-bundles)/[^/]+/content")
_BODIES: Final = frozenset({"POST", "PUT", "PATCH"})
_CREATED: Final = frozenset({201, 202})
_MAX_BODY: Final = 1024 * 1024
"""Of an answer that is looked at for the name of what was made; they are short."""


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


class SayWhereItIs:
    """ASGI middleware. What was made, or the operation that makes it, has its address in ``Location``."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in {"POST", "DELETE"}:
            await self._app(scope, receive, send)
            return
        held: list[Message] = []

        async def located(message: Message) -> None:
            starts = message["type"] == "http.response.start"
            if not held and not (starts and message["status"] in _CREATED):
                await send(message)
                return
            held.append(message)
            if starts or (message.get("more_body") and sum(len(one.get("body", b"")) for one in held) < _MAX_BODY):
                return
            start, *rest = held
            held.clear()
            where = _location(scope, b"".join(one.get("body", b"") for one in rest))
            more = [] if where is None else [(b"location", where.encode())]
            for one in ({**start, "headers": [*start["headers"], *more]}, *rest):
                await send(one)

        await self._app(scope, receive, located)


def _location(scope: Scope, body: bytes) -> str | None:
    """The operation when there is one; else what has a name or id of its own below the path that was posted to."""
    try:
        made = json.loads(body)
    except ValueError:
        return None
    if not isinstance(made, dict):
        return None
    if isinstance(made.get("operation"), str):
        return f"/v1/operations/{quote(made['operation'], safe='')}"
    name = made.get("name")
    return (
        f"{quote(scope['path'])}/{quote(name, safe='')}"
        if scope["method"] == "POST" and isinstance(name, str)
        else None
    )
