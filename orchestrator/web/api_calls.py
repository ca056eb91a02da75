# SPDX-License-Identifier: Apache-2.0
"""The API as pages call it: in this process, through every check that a request from outside passes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

from starlette.applications import Starlette
from starlette.requests import HTTPConnection
from starlette.types import Message, Receive, Scope, Send

from orchestrator.api.auth import identified, identified_lately
from orchestrator.client.version import VERSION
from orchestrator.core.errors import NotFound, VgpuctlError, error_to_dict
from orchestrator.core.tenancy.access import Caller
from orchestrator.web.proofs import Proof

Problem = Mapping[str, Any]
"""An error as the API answers with it: ``status``, ``detail``, ``code``, ``hint``, ``reasons``."""

_NEXT: Final = re.compile(r'<(?P<target>/[!-=?-~]*)>; rel="next"')
_KEPT: Final = frozenset({b"host", b"origin", b"sec-websocket-protocol"})
_AGENT: Final = f"vgpuctl-web/{VERSION}".encode()


class Refused(Exception):
    """The API's answer was a problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem["detail"])
        self.problem = problem
        self.status: int = problem["status"]

    @classmethod
    def of(cls, error: VgpuctlError, status: int | None = None) -> Refused:
        """A refusal of the pages' own."""
        data = error_to_dict(error)
        return cls({**data, "detail": data["message"], "status": status or error.http_status})


@dataclass(frozen=True)
class Answer:
    """``data``: the JSON; ``after``: the cursor of the next page of a list, None where it ends; ``total``: of all pages
    together, where the API says it."""

    data: Any
    after: str | None
    total: int | None


def path_of(*parts: str) -> str:
    """``/v1/…`` with every part quoted.

    :raises Refused: ``request.no_such_path``: a part is empty or has a slash, which no name has
    """
    if any(not part or "/" in part for part in parts):
        raise Refused.of(NotFound("request.no_such_path", "nothing has such a name", hint="take one from a list"))
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


@dataclass(frozen=True)
class ApiCalls:
    """Of one request from a browser. ``client``: its address, for the audit."""

    app: Starlette
    proof: Proof
    client: tuple[str, int]

    async def caller(self, *, lately: bool = False) -> Caller:
        """As ``GET /v1/whoami`` has it, and past the API's routes: they would cost more than all else of a fragment
        that others fetch too. ``lately``: as was answered up to 2 s ago will do. Raises what refuses the proof, which
        nobody counts or records."""
        connection = HTTPConnection(self._scope("GET", "/v1/whoami", "", self._headers(b"", None)))
        return await (identified_lately if lately else identified)(connection, self.app.state)

    async def get(self, path: str, **query: str | int | None) -> Any:
        """:raises Refused:"""
        return (await self.answer("GET", path, query)).data

    async def page(self, path: str, query: Mapping[str, str | int | None]) -> Answer:
        """A page of a list. :raises Refused:"""
        return await self.answer("GET", path, query)

    async def change(
        self, method: str, path: str, body: object = None, *, key: str | None = None, **query: str | int | None
    ) -> Any:
        """``key``: of the request, under which sending it again does nothing twice. :raises Refused:"""
        return (await self.answer(method, path, query, body=body, key=key)).data

    async def answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int | None],
        *,
        body: object = None,
        key: str | None = None,
    ) -> Answer:
        """:raises Refused: the API's problem"""
        content = b"" if body is None else json.dumps(body).encode()
        chosen = urlencode({name: value for name, value in query.items() if value not in {None, ""}})
        status, headers, answered = await self._exchange(method, path, chosen, content, key)
        data: Any = json.loads(answered) if answered else None
        if status >= 400:
            raise Refused(data)
        link = _NEXT.fullmatch(headers.get(b"link", b"").decode())
        after = None if link is None else parse_qs(urlsplit(link["target"]).query)["after"][0]
        total = headers.get(b"x-total-count")
        return Answer(data, after, None if total is None else int(total))

    async def forward(self, path: str, query: str, receive: Receive, send: Send) -> None:
        """The answer goes to ``send`` as it comes: a stream, until ``receive`` says that its reader is gone."""
        await self.app(self._scope("GET", path, query, self._headers(b"", None)), receive, send)

    async def open_stream(
        self, scope: Scope, receive: Receive, send: Send, path: str, query: Mapping[str, str]
    ) -> None:
        """A browser's websocket as one of the API's; what it says of itself stays, but for the cookie."""
        kept = [(name, value) for name, value in scope["headers"] if name in _KEPT]
        own = {
            **scope, "path": unquote(path), "raw_path": path.encode(), "query_string": urlencode(query).encode(),
            "headers": kept + self._headers(b"", None), "client": self._client, "state": {},
        }  # fmt: skip
        await self.app(own, receive, send)

    @property
    def _client(self) -> tuple[str, int]:
        return self.client if self.proof.uid is None else (f"uid:{self.proof.uid}", 0)

    async def _exchange(
        self, method: str, path: str, query: str, content: bytes, key: str | None
    ) -> tuple[int, dict[bytes, bytes], bytes]:
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": content, "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        await self.app(self._scope(method, path, query, self._headers(content, key)), receive, send)
        body = b"".join(message.get("body", b"") for message in sent[1:])
        return sent[0]["status"], dict(sent[0]["headers"]), body

    def _scope(self, method: str, path: str, query: str, headers: list[tuple[bytes, bytes]]) -> Scope:
        return {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1",
            "method": method, "scheme": "http", "path": unquote(path), "raw_path": path.encode(),
            "query_string": query.encode(), "root_path": "", "headers": headers,
            "client": self._client, "server": None, "state": {}, "extensions": {},
        }  # fmt: skip

    def _headers(self, content: bytes, key: str | None) -> list[tuple[bytes, bytes]]:
        headers = [(b"user-agent", _AGENT)]
        if self.proof.token is not None:
            headers.append((b"authorization", f"Bearer {self.proof.token}".encode()))
        if content:
            headers += [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
        if key is not None:
            headers.append((b"idempotency-key", key.encode()))
        return headers
