# SPDX-License-Identifier: Apache-2.0
"""What every request passes before a route sees it: a bound on its body, and the count of what is going on."""

from __future__ import annotations

import time
from typing import Final

from anyio import CapacityLimiter
from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.api.errors import problem
from orchestrator.api.http_rules import takes_file
from orchestrator.core.errors import InvalidInput

MAX_BODY_BYTES: Final = 1024 * 1024
"""User data is at most 64 KiB, and nothing else in a request is long."""

HEALTH_THREADS: Final = CapacityLimiter(4)
"""For whoever watches this process: they are answered also while every other thread is busy."""


class Activity:
    """How many requests are open and when the last one ended. Lives on the event loop only."""

    def __init__(self) -> None:
        self.open = 0
        self._last = time.monotonic()

    def began(self) -> None:
        self.open += 1

    def ended(self) -> None:
        self.open -= 1
        self._last = time.monotonic()

    def idle_seconds(self) -> float:
        """0 while a request is open."""
        return 0.0 if self.open else time.monotonic() - self._last


class CountRequests:
    """ASGI middleware that keeps an :class:`Activity` up to date."""

    def __init__(self, app: ASGIApp, activity: Activity) -> None:
        self._app = app
        self._activity = activity

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        self._activity.began()
        try:
            await self._app(scope, receive, send)
        finally:
            self._activity.ended()


class LimitBody:
    """ASGI middleware: 413 for a body over the bound, whether announced or just sent on and on. Files have bounds of
    their own."""

    def __init__(self, app: ASGIApp, max_bytes: int = MAX_BODY_BYTES) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._message = f"the request's body is over {max_bytes} bytes"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or takes_file(scope):
            await self._app(scope, receive, send)
            return
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > self._max_bytes:
            await problem(
                InvalidInput("request.too_large", self._message, hint="send less at once"), 413, {"connection": "close"}
            )(scope, receive, send)
            return
        seen, answering = 0, False

        async def bounded() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen <= self._max_bytes:
                return message
            if answering:  # a stream of events: its status is said already, so the only thing left is to end it
                return {"type": "http.disconnect"}
            raise HTTPException(413, self._message, {"connection": "close"})

        async def noticing(message: Message) -> None:
            nonlocal answering
            answering = True
            await send(message)

        await self._app(scope, bounded, noticing)
