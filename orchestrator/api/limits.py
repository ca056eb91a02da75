# SPDX-License-Identifier: Apache-2.0
"""What every request passes before a route sees it: a bound on its body, and the count of what is going on."""

from __future__ import annotations

import re
import time
from typing import Final

from anyio import CapacityLimiter
from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.api.errors import problem
from orchestrator.api.http_requests import PREFIX, takes_file
from orchestrator.core.errors import InvalidInput

MAX_BODY_BYTES: Final = 1024 * 1024
"""User data is at most 64 KiB, and nothing else in a request is long."""
MAX_STRANGERS_BODY_BYTES: Final = 4096
"""Outside the versioned API, where nobody has said yet who it is (api/auth.py)."""
MAX_VALUES: Final = 5000
"""Of a body: each is made, looked at and thrown away on the event loop, while nobody else is answered."""
_SEPARATORS: Final = b"[{,"
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)

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


def has_too_many_values(body: bytes | bytearray) -> bool:
    """Of a body that may be JSON; what stands in its strings does not count."""

    def over(text: bytes | bytearray) -> bool:
        return sum(map(text.count, _SEPARATORS)) > MAX_VALUES

    return over(body) and over(_STRING.sub(b"", body))


class LimitBody:
    """ASGI middleware: 413 for a body over the bound, whether announced or just sent on and on, 400 for one of too many
    values. Files have bounds of their own."""

    def __init__(self, app: ASGIApp, max_bytes: int = MAX_BODY_BYTES) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or takes_file(scope):
            await self._app(scope, receive, send)
            return
        versioned = scope["path"].startswith(f"{PREFIX}/")
        most = self._max_bytes if versioned else min(self._max_bytes, MAX_STRANGERS_BODY_BYTES)
        too_long = f"the request's body is over {most} bytes"
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > most:
            await problem(
                InvalidInput("request.too_large", too_long, hint="send less at once"), 413, {"connection": "close"}
            )(scope, receive, send)
            return
        body, answering = bytearray(), False

        async def bounded() -> Message:
            message = await receive()
            body.extend(message.get("body", b""))
            if len(body) > most:
                if answering:  # a stream of events: its status is said already, so the only thing left is to end it
                    return {"type": "http.disconnect"}
                raise HTTPException(413, too_long, {"connection": "close"})
            if not message.get("more_body") and has_too_many_values(body):
                raise HTTPException(400, f"the request's body has over {MAX_VALUES} values", {"connection": "close"})
            return message

        async def noticing(message: Message) -> None:
            nonlocal answering
            answering = True
            await send(message)

        await self._app(scope, bounded, noticing)
