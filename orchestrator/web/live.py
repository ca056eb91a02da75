# SPDX-License-Identifier: Apache-2.0
"""One stream a page: a signal when something that it shows has changed, upon which it fetches what is live again.

Nothing else is told, so nothing can differ from what the page's own address answers. The API's stream of events stands
behind it, with its checks of who may know of what.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import count
from typing import Any, ClassVar, Final
from urllib.parse import urlencode

from anyio import create_task_group
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Message, Receive, Scope, Send

from orchestrator.client.event_reader import concerns, nouns_asked
from orchestrator.web.api_calls import ApiCalls

BETWEEN_S: Final = 0.5
"""Between two signals at least: what happens meanwhile is one."""
APART_S: Final = 0.002
"""Between the signals of two streams, so that requests to the API come in between what readers fetch."""
MAX_TURNS: Final = 200
"""However many streams there are, no signal waits for longer than as many of them take."""
ALIVE_S: Final = 15.0
REFUSED_MS: Final = 10_000
"""After so long, a page whose stream was refused fetches what is live and asks for its stream again."""
_EARLIER_S: Final = 5
"""Controllers' clocks may differ by so much."""
_LAST: Final = 20
"""Of the events before the stream began so many are read: those since the page was made are not to be missed."""
_STREAM: Final = "text/event-stream"
_SIGNAL: Final = "event: news\ndata:\n\n"
_ALIVE: Final = ": alive\n\n"


def stream_of(*nouns: str, names: Iterable[str] = (), tenant: str = "") -> str:
    """Address of a page's stream. ``nouns``, ``names``: of what it shows, as of
    :func:`orchestrator.client.event_reader.concerns`."""
    query = [("noun", noun) for noun in nouns] + [("name", name) for name in names]
    return f"/web/news?{urlencode([*query, ('tenant', tenant), ('since', int(time.time()) - _EARLIER_S)])}"


@dataclass(frozen=True)
class Shown:
    """What a page shows, as its stream's address says."""

    nouns: frozenset[str]
    names: frozenset[str]
    since: float

    @classmethod
    def of(cls, query: QueryParams) -> Shown:
        """A number that is none counts as now: the page misses what happened while it was drawn."""
        since = query.get("since", "")
        return cls(
            frozenset(query.getlist("noun")),
            frozenset(query.getlist("name")),
            float(since) if since.isascii() and since.isdigit() else time.time(),
        )

    def has(self, texts: str) -> bool:
        """Whether one of the events is about something that is shown."""
        return any(map(self._shows, _events_in(texts)))

    def _shows(self, event: Mapping[str, Any]) -> bool:
        late = event["noun"] == "gap" or datetime.fromisoformat(event["at"]).timestamp() >= self.since
        return late and concerns(event, self.nouns, self.names)


@lru_cache(maxsize=16)
def _events_in(texts: str) -> tuple[Mapping[str, Any], ...]:
    """Read once for all streams that are told the same, which are hundreds at one event."""
    datas = (text.partition("data: ")[2] for text in texts.split("\n\n"))
    return tuple(json.loads(data) for data in datas if data)


def waits_s(number: int, streams: int) -> float:
    """Before a signal of the stream of that number, of so many that are told at once."""
    return number % max(1, min(streams, MAX_TURNS)) * APART_S


class Signals(Response):
    """An answer: signals for one page, until it is closed, its reader may no more, or the process leaves."""

    open: ClassVar[int] = 0
    """Streams of this process."""
    _numbers: ClassVar[Iterator[int]] = count()

    def __init__(self, api: ApiCalls, query: QueryParams) -> None:
        super().__init__()
        self._api, self._shown, self._number = api, Shown.of(query), next(self._numbers)
        query_parts = [("noun", noun) for noun in nouns_asked(self._shown.nouns)] + [("last", str(_LAST))]
        if tenant := query.get("tenant"):
            query_parts.append(("tenant", tenant))
        self._query = urlencode(query_parts)
        self._news = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False
        async with create_task_group() as group:

            async def take(message: Message) -> None:
                nonlocal begun
                if message["type"] == "http.response.start":
                    begun = message["status"] == 200
                    if begun:
                        Signals.open += 1
                        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
                        group.start_soon(self._tell, send)
                elif begun and self._shown.has(message.get("body", b"").decode()):
                    self._news.set()

            try:
                await self._api.forward("/v1/events", self._query, receive, take)
            finally:
                Signals.open -= begun
            group.cancel_scope.cancel()
        if begun:  # who may no more is led to the login by what it fetches now
            await send({"type": "http.response.body", "body": _SIGNAL.encode()})
        else:
            await PlainTextResponse(f"retry: {REFUSED_MS}\n{_SIGNAL}", media_type=_STREAM)(scope, receive, send)

    async def _tell(self, send: Send) -> None:
        text = _ALIVE
        while True:
            await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
            await asyncio.sleep(BETWEEN_S if text == _SIGNAL else 0)
            text = _ALIVE
            with suppress(TimeoutError):
                async with asyncio.timeout(ALIVE_S):
                    await self._news.wait()
                await asyncio.sleep(waits_s(self._number, Signals.open))
                text = _SIGNAL
            self._news.clear()


_HEADERS: Final = [(b"content-type", _STREAM.encode()), (b"cache-control", b"no-store")]


async def news(request: Request) -> Response:
    """``GET /web/news``"""
    return Signals(request.state.api, request.query_params)
