# SPDX-License-Identifier: Apache-2.0
"""How somebody becomes known to the pages: by a token that is pasted, by a ticket that 'vgpuctl web' brings, or at the
identity provider (provider_login.py)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from orchestrator.api.loopback import Loopback
from orchestrator.api.protocols import uid_of
from orchestrator.core.errors import Denied, Fatal, InvalidInput, VgpuctlError
from orchestrator.ports.identity import BrowserLogins
from orchestrator.web.api_calls import ApiCalls, Refused
from orchestrator.web.ended_sessions import EndedSessions
from orchestrator.web.forms import form_of
from orchestrator.web.proofs import COOKIES, SESSION_S, BrowserSessions, Proof, Tickets, drop_cookie, keep_cookie
from orchestrator.web.rendering import address, render

_SCHEME: Final = "bearer "
_FIRST: Final = "/web/map"
_LOCAL: Final = re.compile(r"/web/(?!log)[!-\[\]-~]{0,999}", re.ASCII)
"""Addresses that a login may go on to: of a page here that is not about logins."""


@dataclass(frozen=True)
class Logins:
    """What logging in needs. ``loopback``: the port of this machine where a local user's browser finds the pages;
    ``provider``: None: there is no identity provider."""

    sessions: BrowserSessions
    ended: EndedSessions
    tickets: Tickets
    loopback: Loopback
    provider: BrowserLogins | None = None


def to_login(request: Request, *, over: bool = False) -> Response:
    """``over``: the session has ended, with its token. Who logs in comes back to the page."""
    target = address("login", because="over" if over else "needed", to=local_page(_page_of(request), ""))
    if request.headers.get("hx-request") == "true":
        return Response(status_code=204, headers={"HX-Redirect": target})
    answer = RedirectResponse(target, 303)
    if over:
        forget(request, answer)
    return answer


def _page_of(request: Request) -> str:
    """The page that a fragment or a form is of, as far as the browser says; else what was asked for."""
    shown = urlsplit(request.headers.get("hx-current-url", "") if request.method == "GET" else "")
    page = shown if shown.path else urlsplit(str(request.url)) if request.method == "GET" else shown
    return f"{page.path}?{page.query}" if page.query else page.path


def local_page(text: str, otherwise: str = _FIRST) -> str:
    """``text`` where it is the address of a page here, without a host: nobody is led elsewhere by a login."""
    return text if _LOCAL.fullmatch(text) else otherwise


def provider_of(request: Request) -> BrowserLogins | None:
    """None: there is none, or this is the port of a local user, where no provider sends anybody back to."""
    logins: Logins = request.app.state.logins
    return None if request.state.session_host is not None else logins.provider


async def login_page(request: Request) -> Response:
    """``GET /web/login``"""
    return login_form(request, None, request.query_params.get("to", ""))


async def login(request: Request) -> Response:
    """``POST /web/login``: a token becomes a session. It stands in the form alone, never in an address."""
    form = await form_of(request)
    target = form.get("to", "")
    try:
        return await begin_session(request, Proof(token=_token_of(form.get("token", ""))), target)
    except Refused as refused:
        return login_form(request, refused, target)


async def ticket_page(request: Request) -> Response:
    """``GET /web/ticket``: the ticket is in the address's fragment, which browsers send to nobody."""
    return _ticket_form(request, None)


async def take_ticket(request: Request) -> Response:
    """``POST /web/ticket``"""
    logins: Logins = request.app.state.logins
    proof = logins.tickets.take((await form_of(request)).get("ticket", ""))
    try:
        if proof is None or (proof.uid is not None and request.state.session_host is None):
            raise Refused.of(
                Denied(
                    "session.ticket_refused",
                    "this ticket was used already, its minute is over, or it is for another address",
                    hint="'vgpuctl web' gives a new one",
                )
            )
        return await begin_session(request, proof, _FIRST)
    except Refused as refused:
        return _ticket_form(request, refused)


async def give_ticket(request: Request) -> Response:
    """``POST /web/tickets``: for the command line, which shows its token or has the uid of its user. ``address`` is of
    this machine's own pages, for a user of it."""
    logins: Logins = request.app.state.logins
    proof = _shown(request)
    caller = await _whoami(request, proof)
    address = None if proof.uid is None else _opened(logins.loopback)
    return JSONResponse(
        {"ticket": logins.tickets.give(proof, caller["actor"]), "address": address, "actor": caller["actor"]}
    )


async def log_out(request: Request) -> Response:
    """``POST /web/logout``: of these pages, for every copy of the session's cookies; a link of the page that follows
    leads to the provider's own logout, as no form of ours may be answered by another site."""
    logins: Logins = request.app.state.logins
    if request.state.session is not None:
        try:
            await logins.ended.add(request.state.session)
        except VgpuctlError as error:
            raise Refused.of(error) from error
    answer = RedirectResponse(address("login", because="left"), 303)
    forget(request, answer)
    return answer


Page = Callable[[Request], Awaitable[Response]]
ROUTES: Final[dict[tuple[str, str], Page]] = {
    ("GET", "/web/login"): login_page,
    ("POST", "/web/login"): login,
    ("GET", "/web/ticket"): ticket_page,
    ("POST", "/web/ticket"): take_ticket,
    ("POST", "/web/tickets"): give_ticket,
    ("POST", "/web/logout"): log_out,
}


def _opened(loopback: Loopback) -> str:
    """:raises Refused: ``serve.cannot_listen``"""
    try:
        return loopback.open()
    except Fatal as error:
        raise Refused.of(error) from error


def _ticket_form(request: Request, refused: Refused | None) -> Response:
    """A script sends it by itself only where the reader opened the address: behind a link of another site, the ticket
    may be somebody else's, as whom the reader would go on without knowing."""
    values = {
        "title": "Log in",
        "refused": None if refused is None else refused.problem,
        "opened_by_reader": request.headers.get("sec-fetch-site") == "none",
    }
    return render(request, "ticket.html", values, 200 if refused is None else refused.status)


def login_form(request: Request, refused: Refused | None, target: str) -> Response:
    """``target``: the page that a login goes on to."""
    provider, because = provider_of(request), request.query_params.get("because", "")
    weak = refused is not None and refused.problem["code"] == "login.too_weak"
    left = (
        None if provider is None or because != "left" else provider.logout_address(str(request.url.replace(query="")))
    )
    values = {
        "title": "Log in",
        "because": because,
        "refused": None if refused is None else refused.problem,
        "target": local_page(target, ""),
        "provider": None if provider is None else urlsplit(provider.issuer).hostname,
        "levels": provider.levels if provider is not None and weak else (),
        "leave_provider": left,
    }
    return render(request, "login.html", values, 200 if refused is None else refused.status)


def _token_of(text: str) -> str:
    """:raises Refused: ``session.no_token``"""
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise Refused.of(
            InvalidInput("session.no_token", "that is no token", hint="paste what 'vgpuctl token create' printed")
        )
    return text


async def begin_session(request: Request, proof: Proof, target: str) -> Response:
    """:raises Refused: nobody is known by it; ``session.too_long``"""
    logins: Logins = request.app.state.logins
    await _whoami(request, proof)
    cookies = logins.sessions.seal(proof, request.state.session_host)
    if cookies is None:
        raise Refused.of(
            InvalidInput(
                "session.too_long",
                "this token is longer than a browser keeps",
                hint="'vgpuctl token create' makes a short one",
            )
        )
    answer = RedirectResponse(local_page(target), 303)
    forget(request, answer, but=cookies)
    for name, value in cookies.items():
        keep_cookie(answer, name, value, SESSION_S)
    return answer


async def _whoami(request: Request, proof: Proof) -> Any:
    """:raises Refused: nobody is known by it"""
    calls: ApiCalls = request.state.api
    return await ApiCalls(calls.app, proof, calls.client).get("/v1/whoami")


def _shown(request: Request) -> Proof:
    """:raises Refused: ``session.no_token``"""
    given = request.headers.get("authorization", "")
    if given:
        return Proof(token=_token_of(given[len(_SCHEME) :].strip() if given.lower().startswith(_SCHEME) else ""))
    uid = uid_of(request)
    if uid is None:
        return Proof(token=_token_of(""))
    return Proof(uid=uid)


def forget(request: Request, answer: Response, but: Collection[str] = ()) -> None:
    """The browser's session ends; ``but``: cookies that are set anew."""
    for name in COOKIES:
        if name in request.cookies and name not in but:
            drop_cookie(answer, name)
