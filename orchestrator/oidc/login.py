# SPDX-License-Identifier: Apache-2.0
"""Logs a person in from a command: authorization code with PKCE (RFC 7636), answered on a loopback port (RFC 8252)."""

from __future__ import annotations

import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from orchestrator.core.errors import Denied
from orchestrator.oidc.code_flow import begin, redeem
from orchestrator.oidc.provider import Provider

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
    with _RedirectListener(("127.0.0.1", 0), _RedirectHandler) as listener:
        address, attempt = begin(published, client_id, f"http://127.0.0.1:{listener.server_port}/", acr=acr)
        show(address)
        answer = listener.wait(limit_s)
    return redeem(provider, published, client_id, attempt, dict(parse_qsl(urlsplit(answer).query)))
