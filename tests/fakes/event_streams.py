# SPDX-License-Identifier: Apache-2.0
"""Clients of ``GET /v1/events``, and of other streams, at an application in this process; slow ones too."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any, Self

LIMIT_S = 30.0


@dataclass(frozen=True)
class Told:
    """One server-sent event; a position that is none has no data."""

    id: str | None
    event: str | None
    data: dict[str, Any] | None


def told(body: str) -> list[Told]:
    """Whole events of a stream, comments left out."""
    events = []
    for block in body.split("\n\n")[:-1]:
        fields = dict(line.partition(": ")[::2] for line in block.splitlines() if not line.startswith(":"))
        if fields:
            data = json.loads(fields["data"]) if "data" in fields else None
            events.append(Told(fields.get("id"), fields.get("event"), data))
    return events


class EventStream:
    """``async with`` opens and leaves it. ``taking``: cleared, the client takes nothing more."""

    def __init__(
        self,
        app: Any,
        query: str = "",
        headers: Iterable[tuple[bytes, bytes]] = (),
        client: str | None = None,
        path: str = "/v1/events",
    ) -> None:
        self._app = app
        self._gone = asyncio.Event()
        self._body = b""
        self.status = 0
        self.taking = asyncio.Event()
        self.taking.set()
        self._scope = {
            "type": "http", "http_version": "1.1", "method": "GET", "scheme": "https", "path": path,
            "root_path": "", "raw_path": path.encode(), "query_string": query.encode(), "headers": list(headers),
            "client": (client or f"uid:{os.geteuid()}", 1),
        }  # fmt: skip

    @property
    def told(self) -> list[Told]:
        return told(self._body.decode())

    @property
    def events(self) -> list[dict[str, Any]]:
        """Data of what is no gap."""
        return [one.data for one in self.told if one.data is not None and one.event != "gap"]

    @property
    def last_id(self) -> str | None:
        """As a client that comes back would send it."""
        return next((one.id for one in reversed(self.told) if one.id is not None), None)

    async def __aenter__(self) -> Self:
        self._answering = asyncio.ensure_future(self._app(self._scope, self._receive, self._send))
        await self.until(lambda: self.status > 0 and (self.status != 200 or bool(self._body)))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._gone.set()
        self.taking.set()
        await asyncio.wait_for(self._answering, LIMIT_S)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not holds():
                await asyncio.sleep(0.01)

    async def ended(self) -> None:
        await asyncio.wait_for(asyncio.shield(self._answering), LIMIT_S)

    def problem(self) -> dict[str, Any]:
        problem: dict[str, Any] = json.loads(self._body)
        return problem

    async def _receive(self) -> MutableMapping[str, Any]:
        if not self.status:
            self.status = -1
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self.taking.wait()
        self._body += message.get("body", b"")
