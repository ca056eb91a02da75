# SPDX-License-Identifier: Apache-2.0
"""Logs a person in from a command: authorization code with PKCE (RFC 7636), answered on a loopback port (RFC 8252)."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Final

from authlib.common.errors import AuthlibBaseError
from authlib.oauth2.rfc6749.parameters import parse_authorization_code_response, prepare_grant_uri
from authlib.oauth2.rfc7636 import create_s256_code_challenge

from orchestrator.core.errors import Denied
from orchestrator.oidc.provider import Provider, check_address

SCOPE: Final = "openid email profile"
_TOKEN: Final = re.compile("[!-~]{1,16000}", re.ASCII)
"""It goes into a header and a file, of which so much is read (client/token.py)."""
_POLL_S: Final = 0.5


class _RedirectHandler(BaseHTTPRequestHandler):
    """Takes the one request that the browser is sent back with."""

    server: _RedirectListener

    def do_GET(self) -> None:
        if not self.path.startswith("/?"):
            self.send_error(404)
            return
        self.server.answer = f"http://127.0.0.1{self.path}"
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.end_headers()
        self.wfile.write(b"vgpuctl has the answer; this window can be closed.\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the library's name)
        """The code stands in the address: it is written nowhere."""


class _RedirectListener(HTTPServer):
    answer: str | None = None

    def wait(self, limit_s: float) -> str:
        """:raises Denied: ``login.not_finished``"""
        self.timeout = _POLL_S
        deadline = time.monotonic() + limit_s
        while self.answer is None:
            if time.monotonic() > deadline:
                raise Denied("login.not_finished", "nobody logged in", hint="run it again and follow the address")
            self.handle_request()
        return self.answer


def log_in(
    provider: Provider, client_id: str, show: Callable[[str], None], *, acr: str | None = None, limit_s: float = 300
) -> str:
    """The ID token. ``show`` is given the address that the person's browser must visit. ``acr``: the level that the
    provider is asked for; None: it chooses.

    :raises Denied: ``login.refused``, ``login.not_finished``
    :raises Retryable: ``login.unreachable``
    """
    published = provider.metadata()
    where = str(published.get("authorization_endpoint"))
    check_address(where)
    state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(64)
    with _RedirectListener(("127.0.0.1", 0), _RedirectHandler) as listener:
        back = f"http://127.0.0.1:{listener.server_port}/"
        show(
            prepare_grant_uri(
                where,
                client_id,
                "code",
                back,
                SCOPE,
                state,
                code_challenge=create_s256_code_challenge(verifier),
                code_challenge_method="S256",
                acr_values=acr,
            )
        )
        answer = listener.wait(limit_s)
    try:
        code = parse_authorization_code_response(answer, state)["code"]
    except (AuthlibBaseError, ValueError) as error:
        raise _refused(str(error)) from error
    form = {
        "grant_type": "authorization_code", "code": code, "redirect_uri": back, "client_id": client_id,
        "code_verifier": verifier,
    }  # fmt: skip
    tokens = provider.post(str(published.get("token_endpoint")), form)
    token = tokens.get("id_token")
    if not isinstance(token, str):
        raise _refused(str(tokens.get("error_description") or tokens.get("error") or "it gave no ID token"))
    if _TOKEN.fullmatch(token) is None:
        raise _refused("what it gave as an ID token is none")
    return token


def _refused(details: str) -> Denied:
    return Denied(
        "login.refused",
        "the provider refused the login",
        details=details[:300],
        hint="log in again; whoever runs the provider knows why it refuses",
    )
