# SPDX-License-Identifier: Apache-2.0
"""How somebody becomes known to the pages: by a token that is pasted, or by a ticket that 'vgpuctl web' brings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from orchestrator.api.loopback import Loopback
from orchestrator.api.protocols import uid_of
from orchestrator.core.errors import Denied, Fatal, InvalidInput
from orchestrator.web.api_calls import ApiCalls, Refused
from orchestrator.web.forms import form_of
from orchestrator.web.proofs import COOKIE, SESSION_S, BrowserSessions, Proof, Tickets
from orchestrator.web.rendering import render

_SCHEME: Final = "bearer "
_FIRST: Final = "/web/map"


@dataclass(frozen=True)
class Logins:
    """What logging in needs. ``loopback``: the port of this machine where a local user's browser finds the pages."""

    sessions: BrowserSessions
    tickets: Tickets
    loopback: Loopback


def to_login(request: Request, *, over: bool = False) -> Response:
    """``over``: the session has ended, with its token."""
    ask = "over" if over else "needed"
    target = f"/web/login?because={ask}"
    if request.headers.get("hx-request") == "true":
        return Response(status_code=204, headers={"HX-Redirect": target})
    answer = RedirectResponse(target, 303)
    if over:
        _forget(answer)
    return answer


async def login_page(request: Request) -> Response:
    """``GET /web/login``"""
    return _login_form(request, None)


async def login(request: Request) -> Response:
    """``POST /web/login``: a token becomes a session. It stands in the form alone, never in an address."""
    form = await form_of(request)
    try:
        return await _begin(request, Proof(token=_token_of(form.get("token", ""))))
    except Refused as refused:
        return _login_form(request, refused)


async def ticket_page(request: Request) -> Response:
    """``GET /web/ticket``: the ticket is in the address's fragment, which browsers send to nobody."""
    return _ticket_form(request, None)


async def take_ticket(request: Request) -> Response:
    """``POST /web/ticket``"""
    logins: Logins = request.app.state.logins
    proof = logins.tickets.take((await form_of(request)).get("ticket", ""))
    try:
        if proof is None:
            raise Refused.of(
                Denied(
                    "session.ticket_refused",
                    "this ticket was used already, or its minute is over",
                    hint="'vgpuctl web' gives a new one",
                )
            )
        return await _begin(request, proof)
    except Refused as refused:
        return _ticket_form(request, refused)


async def give_ticket(request: Request) -> Response:
    """``POST /web/tickets``: for the command line, which shows its token or has the uid of its user. ``address`` is of
    this machine's own pages, for a user of it."""
    logins: Logins = request.app.state.logins
    proof = _shown(request)
    caller = await _whoami(request, proof)
    address = None if proof.uid is None else _opened(logins.loopback)
    return JSONResponse({"ticket": logins.tickets.give(proof), "address": address, "actor": caller["actor"]})


async def log_out(_: Request) -> Response:
    """``POST /web/logout``"""
    answer = RedirectResponse("/web/login?because=left", 303)
    _forget(answer)
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


def _login_form(request: Request, refused: Refused | None) -> Response:
    values = {
        "title": "Log in",
        "because": request.query_params.get("because", ""),
        "refused": None if refused is None else refused.problem,
    }
    return render(request, "login.html", values, 200 if refused is None else refused.status)


def _token_of(text: str) -> str:
    """:raises Refused: ``session.no_token``"""
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise Refused.of(
            InvalidInput("session.no_token", "that is no token", hint="paste what 'vgpuctl token create' printed")
        )
    return text


async def _begin(request: Request, proof: Proof) -> Response:
    """:raises Refused: nobody is known by it; ``session.too_long``"""
    logins: Logins = request.app.state.logins
    await _whoami(request, proof)
    value = logins.sessions.seal(proof, request.state.session_host)
    if value is None:
        raise Refused.of(
            InvalidInput(
                "session.too_long",
                "this token is longer than a browser keeps",
                hint="'vgpuctl token create' makes a short one",
            )
        )
    answer = RedirectResponse(_FIRST, 303)
    answer.set_cookie(COOKIE, value, int(SESSION_S), path="/", secure=True, httponly=True, samesite="lax")
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


def _forget(answer: Response) -> None:
    answer.delete_cookie(COOKIE, path="/", secure=True, httponly=True, samesite="lax")
