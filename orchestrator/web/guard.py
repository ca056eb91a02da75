# SPDX-License-Identifier: Apache-2.0
"""What every request of a browser passes first: the right host, one proof, no foreign origin; and the headers that each
answer gets."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from anyio import CancelScope, create_task_group
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from orchestrator.api.auth import ASK_AGAIN_S
from orchestrator.api.protocols import uid_of
from orchestrator.api.routes.guest_streams import ENDED
from orchestrator.core.errors import Denied, InvalidInput, VgpuctlError
from orchestrator.web.api_calls import ApiCalls, Refused, path_of
from orchestrator.web.ended_sessions import EndedSessions
from orchestrator.web.proofs import COOKIE, BrowserSessions, Proof, Session
from orchestrator.web.rendering import error_page

PREFIX: Final = "/web"
_CONSOLE: Final = re.compile(r"/web/vms/(?P<tenant>[^/]+)/(?P<name>[^/]+)/console-sessions/(?P<kind>[a-z]+)")
_OTHERS: Final = frozenset({"/", PREFIX})
_POLICY: Final = (
    "default-src 'none'; script-src 'self' 'nonce-{nonce}'; style-src 'self'{style}; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types htmx"
)
_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "X-Frame-Options": "DENY",
}
_UNPROVEN: Final = Proof()


def is_page(scope: Scope) -> bool:
    """Whether the request is for the pages and not for the API."""
    return scope["type"] in {"http", "websocket"} and (
        scope["path"] in _OTHERS or scope["path"].startswith(f"{PREFIX}/")
    )


@dataclass(frozen=True)
class Guard:
    """ASGI middleware. Puts ``nonce``, ``request_id``, ``session`` and its ``proof`` (None: nobody has logged in),
    ``session_host`` (where a session of here is good, proofs.py) and ``api`` into the request's state. ``only_host``:
    the one ``Host`` that is answered; None: any, as over TLS the certificate says it.
    """

    pages: ASGIApp
    api: Starlette
    sessions: BrowserSessions
    ended: EndedSessions
    only_host: Callable[[], str] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._stream(scope, receive, send)
            return
        request = Request(scope, receive)
        state = request.state
        state.nonce, state.request_id = secrets.token_urlsafe(16), secrets.token_hex(6)
        state.style = ""

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                policy = _POLICY.format(nonce=state.nonce, style=state.style)
                headers.update({**_HEADERS, "Content-Security-Policy": policy, "X-Request-Id": state.request_id})
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            await self._know(request)
            self._check(request)
        except Refused as refused:
            await error_page(request, refused)(scope, receive, send_guarded)
            return
        await self.pages(scope, receive, send_guarded)

    async def _know(self, request: HTTPConnection) -> None:
        """:raises Refused: the database is away"""
        state, client = request.state, request.client
        state.session_host = None if self.only_host is None else self.only_host()
        state.proof = state.session = state.api = None
        session = self.sessions.open(request.cookies, state.session_host)
        if session is not None and not await self._is_ended(session):
            state.session, state.proof = session, session.proof
        address = ("unknown", 0) if client is None else (client.host, client.port)
        state.api = ApiCalls(self.api, state.proof or _UNPROVEN, address)

    async def _is_ended(self, session: Session) -> bool:
        """:raises Refused: the database is away"""
        try:
            return await self.ended.has(session)
        except VgpuctlError as error:
            raise Refused.of(error) from error

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A console of a page's reader, opened by the API with the session's proof; all other websockets are refused
        with 403, and browsers tell a page no more than that."""
        socket = WebSocket(scope, receive, send)
        path = _CONSOLE.fullmatch(scope["path"])
        try:
            await self._know(socket)
            self._check(socket)
            if path is None or socket.state.proof is None or origin_of(socket) != own_origin(socket):
                raise Refused.of(_FOREIGN)
        except Refused:
            await receive()  # the request to open it
            await socket.close()
            return
        api: ApiCalls = socket.state.api
        target = path_of("vms", path["name"], "console-sessions", path["kind"])
        async with create_task_group() as group:
            group.start_soon(self._close_when_ended, socket, group.cancel_scope)
            await api.open_stream(scope, receive, send, target, {"tenant": path["tenant"]})
            group.cancel_scope.cancel()

    async def _close_when_ended(self, socket: WebSocket, stream: CancelScope) -> None:
        """A database that is away for a moment ends no session."""
        ended = False
        while not ended:
            await asyncio.sleep(ASK_AGAIN_S)
            with suppress(Refused):
                ended = await self._is_ended(socket.state.session)
        await socket.close(ENDED, "it was logged out of")
        stream.cancel()

    def _check(self, request: HTTPConnection) -> None:
        """:raises Refused: ``session.wrong_host``, ``session.two_proofs``, ``session.foreign_origin``"""
        if self.only_host is not None and request.headers.get("host") != self.only_host():
            raise Refused.of(
                Denied("session.wrong_host", "these pages are under another name", hint="'vgpuctl web' opens them"), 421
            )
        if shows_two_proofs(request):
            raise Refused.of(TWO_PROOFS)
        if request.scope.get("method", "GET") not in {"GET", "HEAD"} and not _is_same_origin(request):
            raise Refused.of(_FOREIGN)


TWO_PROOFS: Final = InvalidInput(
    "session.two_proofs", "the request shows a session and a token", hint="programs show the token alone"
)
_FOREIGN: Final = Denied(
    "session.foreign_origin",
    "a page of another origin sent this",
    hint="open the page here and send it from there",
)


def shows_two_proofs(request: HTTPConnection) -> bool:
    """A session and a token: whose request it is would hang on which of them is read."""
    return "authorization" in request.headers and COOKIE in request.cookies


def _is_same_origin(request: HTTPConnection) -> bool:
    """What browsers say of a form's origin: pages without a referrer send ``null`` as their ``Origin``, and then
    ``Sec-Fetch-Site`` alone tells. Who says nothing is no browser: it shows a token or is a user of the machine."""
    site, origin = request.headers.get("sec-fetch-site"), origin_of(request)
    if site is None and origin is None:
        return COOKIE not in request.cookies and ("authorization" in request.headers or uid_of(request) is not None)
    same = origin == own_origin(request)
    return same if site is None else site == "same-origin" and (same or origin in {None, "null"})


def origin_of(request: HTTPConnection) -> str | None:
    """As the request says it."""
    origin = request.headers.get("origin")
    return None if origin is None else _without_usual_port(origin)


def own_origin(request: HTTPConnection) -> str:
    """Of the pages, as the request reached them."""
    scheme = {"ws": "http", "wss": "https"}.get(request.url.scheme, request.url.scheme)
    return _without_usual_port(f"{scheme}://{request.headers.get('host', '')}")


def _without_usual_port(origin: str) -> str:
    usual = {"http": ":80", "https": ":443"}.get(urlsplit(origin).scheme, "")
    return origin.removesuffix(usual) if usual else origin
