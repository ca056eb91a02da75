# SPDX-License-Identifier: Apache-2.0
"""ETags (RFC 9110): every GET that answers JSON carries one, and who has that answer already gets 304."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
