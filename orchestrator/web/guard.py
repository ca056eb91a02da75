# SPDX-License-Identifier: Apache-2.0
"""What every request of a browser passes first: the right host, one proof, no foreign origin; and the headers that each
answer gets."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.api.protocols import uid_of
from orchestrator.core.errors import Denied, InvalidInput
from orchestrator.web.api_calls import ApiCalls, Refused
from orchestrator.web.proofs import COOKIE, BrowserSessions, Proof
from orchestrator.web.rendering import error_page

PREFIX: Final = "/web"
_OTHERS: Final = frozenset({"/", PREFIX})
_POLICY: Final = (
    "default-src 'none'; script-src 'self' 'nonce-{nonce}'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
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
    return scope["type"] == "http" and (scope["path"] in _OTHERS or scope["path"].startswith(f"{PREFIX}/"))


@dataclass(frozen=True)
class Guard:
    """ASGI middleware. Puts ``nonce``, ``request_id``, ``proof`` (None: nobody has logged in), ``session_host`` (where
    a session of here is good, proofs.py) and ``api`` into the request's state. ``only_host``: the one ``Host`` that is
    answered; None: any, as over TLS the certificate says it.
    """

    pages: ASGIApp
    api: ASGIApp
    sessions: BrowserSessions
    only_host: Callable[[], str] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        state = request.state
        state.nonce, state.request_id = secrets.token_urlsafe(16), secrets.token_hex(6)
        cookie = request.cookies.get(COOKIE)
        state.session_host = None if self.only_host is None else self.only_host()
        state.proof = None if cookie is None else self.sessions.open(cookie, state.session_host)
        client = request.client
        address = ("unknown", 0) if client is None else (client.host, client.port)
        state.api = ApiCalls(self.api, state.proof or _UNPROVEN, address)
        policy = _POLICY.format(nonce=state.nonce)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update({**_HEADERS, "Content-Security-Policy": policy, "X-Request-Id": state.request_id})
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            self._check(request)
        except Refused as refused:
            await error_page(request, refused)(scope, receive, send_guarded)
            return
        await self.pages(scope, receive, send_guarded)

    def _check(self, request: Request) -> None:
        """:raises Refused: ``session.wrong_host``, ``session.two_proofs``, ``session.foreign_origin``"""
        if self.only_host is not None and request.headers.get("host") != self.only_host():
            raise Refused.of(
                Denied("session.wrong_host", "these pages are under another name", hint="'vgpuctl web' opens them"), 421
            )
        if COOKIE in request.cookies and "authorization" in request.headers:
            raise Refused.of(
                InvalidInput(
                    "session.two_proofs",
                    "the request shows a session and a token",
                    hint="programs show the token alone",
                )
            )
        if request.method not in {"GET", "HEAD"} and not _is_same_origin(request):
            raise Refused.of(
                Denied(
                    "session.foreign_origin",
                    "a page of another origin sent this form",
                    hint="open the page here and send it from there",
                )
            )


def _is_same_origin(request: Request) -> bool:
    """What browsers say of a form's origin: pages without a referrer send ``null`` as their ``Origin``, and then
    ``Sec-Fetch-Site`` alone tells. Who says nothing is no browser: it shows a token or is a user of the machine."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is None and origin is None:
        return COOKIE not in request.cookies and ("authorization" in request.headers or uid_of(request) is not None)
    own = f"{request.url.scheme}://{request.headers.get('host', '')}"
    same = origin is not None and _without_usual_port(origin) == _without_usual_port(own)
    return same if site is None else site == "same-origin" and (same or origin in {None, "null"})


def _without_usual_port(origin: str) -> str:
    usual = {"http": ":80", "https": ":443"}.get(urlsplit(origin).scheme, "")
    return origin.removesuffix(usual) if usual else origin
