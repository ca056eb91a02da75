# SPDX-License-Identifier: Apache-2.0
"""What HTTP asks of every answer (RFC 9110): HEAD, ``Location`` of what was made, an ETag for every GET that answers
JSON; who has that answer already gets 304."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Collection
from typing import Any, Final
from urllib.parse import quote

from anyio import CancelScope
from fastapi import Response
from fastapi.responses import StreamingResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.api.http_requests import PREFIX
from orchestrator.api.schemas.operations import StartedAnswer
from orchestrator.services.messages import Started


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


ALIVE: Final = ": alive\n\n"
"""A comment of a stream of events: proxies drop connections on which nothing is said."""


class EventStream(StreamingResponse):
    """Server-sent events, made of their texts."""

    media_type = "text/event-stream"

    def __init__(self, texts: AsyncIterator[str]) -> None:
        super().__init__(texts, headers={"cache-control": "no-store"})


def event_stream_answers(description: str) -> dict[int | str, dict[str, Any]]:
    """``responses`` of a route that answers with an :class:`EventStream`."""
    return {200: {"description": description, "content": {EventStream.media_type: {"schema": {"type": "string"}}}}}


PART_BYTES: Final = 64 * 1024
"""Of an answer is handed over at once: encrypting it takes time, and others are answered between two parts."""


class AnswerOnlyChanges:
    """ASGI middleware. Answers are small, so the tag is a hash of the body and never wrong."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in {"GET", "HEAD"}:
            await self._app(scope, receive, send)
            return
        answer = _HeldAnswer(send, Headers(scope=scope).get("if-none-match", ""))
        await self._app(scope, receive, answer.take)


class _HeldAnswer:
    """Holds a JSON answer back until its tag is known; lets everything else through."""

    def __init__(self, send: Send, known: str) -> None:
        self._send = send
        self._known = {tag.strip().removeprefix("W/") for tag in known.split(",")}
        self._start: Message | None = None
        self._body: list[bytes] = []

    async def take(self, message: Message) -> None:
        """Stands where ``send`` would."""
        if message["type"] == "http.response.start" and _may_be_tagged(message):
            self._start = message
        elif self._start is None:
            await self._send(message)
        else:
            self._body.append(message.get("body", b""))
            if not message.get("more_body", False):
                await self._finish(self._start)

    async def _finish(self, start: Message) -> None:
        body = b"".join(self._body)
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        headers = MutableHeaders(raw=start["headers"])
        headers["etag"] = tag
        headers["cache-control"] = "no-cache"
        if tag in self._known or "*" in self._known:
            del headers["content-length"], headers["content-type"]
            start, body = {**start, "status": 304}, b""
        await self._send(start)
        for at in range(0, len(body), PART_BYTES):
            await self._send({"type": "http.response.body", "body": body[at : at + PART_BYTES], "more_body": True})
            await asyncio.sleep(0)
        await self._send({"type": "http.response.body", "body": b""})


def _may_be_tagged(start: Message) -> bool:
    return start["status"] == 200 and Headers(raw=start["headers"]).get("content-type") == "application/json"
