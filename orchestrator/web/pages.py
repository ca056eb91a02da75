# SPDX-License-Identifier: Apache-2.0
"""All pages as one ASGI application, and how it stands beside the API."""

from __future__ import annotations

import gzip
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from orchestrator.api.errors import problem
from orchestrator.api.loopback import Loopback
from orchestrator.core.errors import Bug, InvalidInput, NotFound, VgpuctlError
from orchestrator.ports.identity import BrowserLogins
from orchestrator.store.database import Store
from orchestrator.web.api_calls import Refused
from orchestrator.web.callers import reader_of
from orchestrator.web.ended_sessions import EndedSessions
from orchestrator.web.guard import TWO_PROOFS, Guard, is_page, shows_two_proofs
from orchestrator.web.live import news
from orchestrator.web.login import ROUTES as LOGIN
from orchestrator.web.login import Logins, to_login
from orchestrator.web.proofs import BrowserSessions, Tickets
from orchestrator.web.provider_login import ROUTES as PROVIDER
from orchestrator.web.rendering import LIVE, assets, error_page, part_of
from orchestrator.web.sharing import Shared
from orchestrator.web.views import consoles, create, findings, fleet, lists, oneself, operations, vms

log = logging.getLogger(__name__)

View = Callable[[Request], Awaitable[Response]]
_FOREVER: Final = {"Cache-Control": "public, max-age=31536000, immutable"}
_NOT_LOGGED_IN: Final = 401
_LEVEL: Final = 4
_COMPRESSED: Final = {"Content-Encoding": "gzip"}
MIN_COMPRESSED: Final = 1024
"""Bytes of an answer from which on it is compressed: no page has a secret of its reader's beside another's text."""


class BesideApi:
    """ASGI application: what is a page's goes to the pages, all else to the API. That takes no cookie of theirs: who
    shows one beside a token is refused there, too."""

    def __init__(self, pages: ASGIApp, api: ASGIApp) -> None:
        self._pages, self._api = pages, api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if is_page(scope):
            await self._pages(scope, receive, send)
        elif scope["type"] == "http" and shows_two_proofs(HTTPConnection(scope)):
            await problem(TWO_PROOFS)(scope, receive, send)
        else:
            await self._api(scope, receive, send)


def pages_beside(
    ring: bytes, store: Store, provider: BrowserLogins | None = None
) -> Callable[[Starlette, Loopback], ASGIApp]:
    """What the server's process puts around its API. ``ring``: the database's keys, core/tenancy/key_ring.py.
    ``store``: has what was logged out of. ``provider``: None: nobody logs in elsewhere.

    The port of this machine alone has the pages and no API: nobody is vouched for there."""

    def beside(api: Starlette, loopback: Loopback) -> ASGIApp:
        sessions, ended = BrowserSessions(ring, time.time), EndedSessions(store)
        pages = _application(Logins(sessions, ended, Tickets(time.time), loopback, provider))
        loopback.serves = Guard(pages, api, sessions, ended, only_host=lambda: loopback.host)
        return BesideApi(Guard(pages, api, sessions, ended), api)

    return beside


def _application(logins: Logins) -> Starlette:
    live_parts: Shared[tuple[int, bytes]] = Shared()
    views = {
        ("GET", "/web/news"): news,
        **fleet.ROUTES,
        **consoles.ROUTES,
        **vms.ROUTES,
        **create.ROUTES,
        **operations.ROUTES,
        **findings.ROUTES,
        **lists.ROUTES,
        **oneself.ROUTES,
    }
    routes = [
        Route("/", _to_map),
        Route("/web", _to_map),
        Route("/web/static/{digest}/{name:path}", _static),
        *(Route(path, view, methods=[method]) for (method, path), view in {**LOGIN, **PROVIDER}.items()),
        *(Route(path, _for_readers(view, live_parts), methods=[method]) for (method, path), view in views.items()),
        Route("/web/{rest:path}", _for_readers(_nothing, live_parts)),
    ]
    handlers = {Refused: _refused, HTTPException: _other_method, Exception: _unexpected}
    compressed = Middleware(GZipMiddleware, minimum_size=MIN_COMPRESSED, compresslevel=_LEVEL)
    made = Starlette(routes=routes, exception_handlers=handlers, middleware=[compressed])
    made.state.logins = logins
    return made


class _Changed(Exception):
    """Who made it for others may no longer read it as they do."""


def _for_readers(view: View, live_parts: Shared[tuple[int, bytes]]) -> View:
    """The page for whoever has logged in; who has not comes back to it afterwards."""

    async def shown(request: Request) -> Response:
        if request.state.proof is None:
            return to_login(request)
        try:
            if request.method == "GET" and part_of(request) == LIVE:
                with suppress(_Changed):
                    return await _shared(view, request, live_parts)
            request.state.reader = await reader_of(request.state.api)
        except Refused as refused:
            if refused.status != _NOT_LOGGED_IN:
                raise
            return to_login(request, over=True)
        return await view(request)

    return shown


async def _shared(view: View, request: Request, live_parts: Shared[tuple[int, bytes]]) -> Response:
    await live_parts.turn()
    request.state.reader = reader = await reader_of(request.state.api, lately=True)
    wanted = (str(request.url), reader.rights)
    status, body = await live_parts.made(wanted, lambda: _made(view, request))
    await live_parts.turn()
    return Response(body, status, media_type="text/html", headers=_COMPRESSED)


async def _made(view: View, request: Request) -> tuple[int, bytes]:
    """Compressed once for all: every browser takes that. Whose request it is made for is asked now."""
    try:
        caller = await request.state.api.caller()
    except VgpuctlError as error:
        raise _Changed from error
    if frozenset(caller.grants) != request.state.reader.rights:
        raise _Changed
    answer = await view(request)
    return answer.status_code, gzip.compress(bytes(answer.body), _LEVEL)


async def _to_map(_: Request) -> Response:
    return RedirectResponse("/web/map", 303)


async def _static(request: Request) -> Response:
    content, media_type, address = assets().get(request.path_params["name"], (b"", "", ""))
    if address != request.url.path:
        return PlainTextResponse("no such file\n", 404)
    return Response(content, media_type=media_type, headers=_FOREVER)


async def _refused(request: Request, error: Exception) -> Response:
    if not isinstance(error, Refused):
        raise error
    return error_page(request, error)


async def _nothing(_: Request) -> Response:
    raise Refused.of(
        NotFound("request.no_such_path", "there is no such page", hint="the links above lead to all that are")
    )


async def _other_method(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    known = InvalidInput("request.method", "this page takes no such request", hint="open it by its address")
    return error_page(request, Refused.of(known, status))


async def _unexpected(request: Request, error: Exception) -> Response:
    log.error("request %s of a page ended with an unexpected error", request.state.request_id, exc_info=error)
    return error_page(request, Refused.of(Bug("bug", "unexpected error", hint="the server's log has it under this id")))
