# SPDX-License-Identifier: Apache-2.0
"""``If-Match`` (RFC 9110): who changes what it has read says so, and is refused when that is no longer so.

The tag is looked at just before the request runs, so of two that come in the same instant both may pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.api.errors import problem
from orchestrator.api.etags import AnswerOnlyChanges
from orchestrator.api.route_table import table_of
from orchestrator.core.errors import Conflict

PRECONDITION_FAILED: Final = 412
_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_OF_THE_CHANGE: Final = frozenset(
    {b"if-match", b"if-none-match", b"content-length", b"content-type", b"idempotency-key", b"transfer-encoding"}
)


class RefuseStale:
    """ASGI middleware. The tag is that of a GET of the same path, or of the object whose verb the path names."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._read = AnswerOnlyChanges(app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        changes = scope["type"] == "http" and scope["method"] not in _READS
        wanted = Headers(scope=scope).getlist("if-match") if changes else []
        if not wanted or table_of(scope).find(scope["method"], scope["path"]) is None:
            await self._app(scope, receive, send)
            return
        recorded = await self._recorded(scope)
        if recorded is not None and recorded.status != 200:
            await recorded.pass_on(send)
            return
        tags = {tag.strip() for line in wanted for tag in line.split(",")}
        if recorded is not None and ("*" in tags or recorded.tag in tags):
            await self._app(scope, receive, send)
            return
        stale = Conflict(
            "request.stale",
            "it is not as it was when you read it",
            hint="read it again, then decide whether to change it",
        )
        await problem(stale, PRECONDITION_FAILED)(scope, receive, send)

    async def _recorded(self, scope: Scope) -> _RecordedAnswer | None:
        """None: nothing that the path names answers JSON and ends, so that nothing has a tag."""
        own = scope["path"]
        for path in (own, own.rpartition("/")[0]):
            readable = table_of(scope).find("GET", path)
            if readable is not None and readable.ends_in_json:
                return await self._get(scope, path)
        return None

    async def _get(self, scope: Scope, path: str) -> _RecordedAnswer:
        """Asked by the same caller. Of the query only the tenant says which object is meant."""
        query = [pair for pair in parse_qsl(scope["query_string"].decode("latin-1")) if pair[0] == "tenant"]
        asked = {
            **scope,
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": urlencode(query).encode(),
            "headers": [pair for pair in scope["headers"] if pair[0] not in _OF_THE_CHANGE],
            "state": {},
        }
        recorded = _RecordedAnswer()
        messages: Iterator[Message] = iter([{"type": "http.request", "body": b"", "more_body": False}])

        async def receive() -> Message:
            return next(messages, {"type": "http.disconnect"})

        await self._read(asked, receive, recorded.take)
        return recorded


class _RecordedAnswer:
    """An answer to us."""

    def __init__(self) -> None:
        self._messages: list[Message] = []

    async def take(self, message: Message) -> None:
        """Stands where ``send`` would."""
        self._messages.append(message)

    @property
    def status(self) -> int:
        return int(self._messages[0]["status"])

    @property
    def tag(self) -> str | None:
        return Headers(raw=self._messages[0]["headers"]).get("etag")

    async def pass_on(self, send: Send) -> None:
        """To the caller: who may not read it, or where it is not, has nothing to compare with."""
        for message in self._messages:
            await send(message)
