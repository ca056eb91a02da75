# SPDX-License-Identifier: Apache-2.0
"""Changes: one call of the API under the form's key, then another page; a refusal stands where the click was."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from orchestrator.core.errors import Conflict, InvalidInput
from orchestrator.web.api_calls import ApiCalls, Problem, Refused
from orchestrator.web.forms import form_of
from orchestrator.web.proofs import SECRET_COOKIE, SECRET_S, BrowserSessions, drop_cookie, keep_cookie
from orchestrator.web.rendering import address, render

Form = Mapping[str, str]
_NOT_FOUND: Final = 404


@dataclass(frozen=True)
class RefusedAct:
    """What a page shows beside the button ``act``; ``form``: what was sent."""

    act: str
    problem: Problem
    form: Form


def render_acts(
    request: Request, template: str, values: Mapping[str, Any], refused: RefusedAct | None, status: int = 200
) -> Response:
    """A page with acts; what was ``refused`` decides the status."""
    status = status if refused is None else refused.problem["status"]
    return render(request, template, {**values, "refused": refused}, status)


Change = Callable[[ApiCalls, Form], Awaitable[Any]]
Shown = Callable[[Request, RefusedAct], Awaitable[Response]]


async def carry_out(
    request: Request, act: str | Callable[[Form], str], change: Change, shown: Shown, target: str
) -> Response:
    """``change`` is asked for; its operation's page follows, or ``target`` where there is none. ``shown``: the page
    that the form is on, with the refusal, beside ``act``."""
    form = await form_of(request)
    try:
        answer = await change(request.state.api, form)
    except Refused as refused:
        return await shown(request, RefusedAct(act if isinstance(act, str) else act(form), refused.problem, form))
    if isinstance(answer, dict) and "token" in answer:
        return show_once(request, answer["token"], target)
    operation = answer.get("operation") if isinstance(answer, dict) and "existing" in answer else None
    return RedirectResponse(target if operation is None else address("operations", operation), 303)


def show_once(request: Request, token: str, back: str) -> Response:
    """A page of its own shows it, so that a reload makes no second one; a minute long, and to this browser alone."""
    sessions: BrowserSessions = request.app.state.logins.sessions
    answer = RedirectResponse(address("new-token"), 303)
    sealed = sessions.seal_secret(token, back)
    keep_cookie(answer, SECRET_COOKIE, sealed, SECRET_S, "strict")
    return answer


async def new_token(request: Request) -> Response:
    """``GET /web/new-token``"""
    sessions: BrowserSessions = request.app.state.logins.sessions
    token, back = sessions.open_secret(request.cookies.get(SECRET_COOKIE, "")) or ("", address("map"))
    answer = render(request, "token.html", {"title": "New token", "token": token, "back": back})
    drop_cookie(answer, SECRET_COOKIE, "strict")
    return answer


async def unchanged(api: ApiCalls, form: Form, member: str, path: str, **query: str | None) -> None:
    """A form that was sent again much later takes nothing that got the same name since it was shown. Of what is gone
    the API says so, or under the form's key what it answered before.

    :raises Refused: ``form.another``
    """
    try:
        now = await api.get(path, **query)
    except Refused as refused:
        if refused.status != _NOT_FOUND:
            raise
        return
    if str(now[member]) != form.get(member):
        raise Refused.of(Conflict("form.another", "something else has this name by now", hint="look at it first"))


def confirmed(form: Form, wanted: str) -> None:
    """Nothing goes by one click that the command line would ask about.

    :raises Refused: ``form.not_confirmed``
    """
    if form.get("confirm", "") != wanted:
        raise Refused.of(
            InvalidInput("form.not_confirmed", "the name that was typed is another one", hint=f"type {wanted}")
        )
