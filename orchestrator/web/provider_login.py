# SPDX-License-Identifier: Apache-2.0
"""Login at the identity provider: a browser is sent there and comes back with a code, which becomes a session.

What only this browser may end it with is in a cookie of ten minutes, sealed: state, nonce, the verifier of PKCE, where
it is sent back, and the page that it goes on to.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from orchestrator.core.errors import Denied, NotFound, VgpuctlError
from orchestrator.ports.identity import BrowserLogins
from orchestrator.web.api_calls import Refused
from orchestrator.web.login import Logins, Page, begin_session, local_page, login_form, provider_of
from orchestrator.web.proofs import ATTEMPT_COOKIE, ATTEMPT_S, LoginAttempt, Proof, drop_cookie, keep_cookie

_HOST: Final = re.compile(r"[0-9A-Za-z.:\[\]-]{1,255}", re.ASCII)
_AT_ONCE: Final = 8
"""Logins that wait for the provider at the same time, each on a thread; more wait for these."""
_waiting = CapacityLimiter(_AT_ONCE)
Given = TypeVar("Given")


async def begin(request: Request) -> Response:
    """``GET /web/login/provider``: changes nothing here, so that a link may lead to it."""
    target = local_page(request.query_params.get("to", ""))
    level = request.query_params.get("acr")
    try:
        provider = _provider(request)
        acr = level if level in provider.levels else None
        where, kept = await _answer_of(lambda: provider.begin_login(_back(request), acr))
    except Refused as refused:
        return login_form(request, refused, target)
    logins: Logins = request.app.state.logins
    answer = RedirectResponse(where, 303)
    sealed = logins.sessions.seal_attempt(LoginAttempt(kept=kept, target=target))
    keep_cookie(answer, ATTEMPT_COOKIE, sealed, ATTEMPT_S)
    return answer


async def finish(request: Request) -> Response:
    """``GET /web/login/back``: the provider sends the browser here, with a code or with its refusal."""
    logins: Logins = request.app.state.logins
    attempt = logins.sessions.open_attempt(request.cookies.get(ATTEMPT_COOKIE, ""))
    target = "" if attempt is None else attempt.target
    try:
        provider = _provider(request)
        if attempt is None or attempt.kept["back"] != _back(request):
            raise Refused.of(
                Denied(
                    "login.other_browser",
                    "this browser began no such login, or its ten minutes are over",
                    hint="log in again here",
                )
            )
        token = await _answer_of(lambda: provider.finish_login(attempt.kept, dict(request.query_params)))
        answer = await begin_session(request, Proof(token=token), target)
    except Refused as refused:
        answer = login_form(request, refused, target)
    drop_cookie(answer, ATTEMPT_COOKIE)
    return answer


def _provider(request: Request) -> BrowserLogins:
    """:raises Refused: ``login.no_provider``"""
    provider = provider_of(request)
    if provider is None:
        raise Refused.of(NotFound("login.no_provider", "nobody logs in elsewhere here", hint="paste a token"))
    return provider


def _back(request: Request) -> str:
    """Where the provider sends the browser, under the name that the browser has this server by: the provider knows
    which names are ours. :raises Refused: ``session.wrong_host``"""
    host = request.headers.get("host", "")
    if not _HOST.fullmatch(host):
        raise Refused.of(Denied("session.wrong_host", "these pages have no such name", hint="open them by their name"))
    return f"{request.url.scheme}://{host}/web/login/back"


async def _answer_of(ask: Callable[[], Given]) -> Given:
    """What the provider's side answers, on a thread. :raises Refused:"""
    try:
        return await to_thread.run_sync(ask, limiter=_waiting)
    except VgpuctlError as error:
        raise Refused.of(error) from error


ROUTES: Final[dict[tuple[str, str], Page]] = {
    ("GET", "/web/login/provider"): begin,
    ("GET", "/web/login/back"): finish,
}
