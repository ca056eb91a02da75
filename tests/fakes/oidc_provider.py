# SPDX-License-Identifier: Apache-2.0
"""A small identity provider on a loopback port: discovery, keys, a login page that asks nothing, real signatures."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from authlib.oauth2.rfc7636 import create_s256_code_challenge
from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT = "vgpuctl"


class OidcProvider:
    """``claims`` are those of whoever logs in next."""

    def __init__(self, port: int) -> None:
        self.issuer = f"http://127.0.0.1:{port}/pool"
        self.key = RSAKey.generate_key(2048, {"kid": "one", "use": "sig"})
        self.claims: dict[str, object] = {}
        self.refuses = self.away = False
        self.attempts: dict[str, dict[str, str]] = {}
        """What was asked for, by the code that answers it."""
        self.secret: str | None = None
        """Of the client; None: it is a public one."""
        self.instead: dict[str, bytes] = {}
        """What it says at a path, whatever that should be."""

    def token(self, claims: Mapping[str, object] | None = None, *, key: RSAKey | None = None, typ: str = "JWT") -> str:
        """An ID token; ``None`` as a claim's value leaves it out."""
        now = int(time.time())
        known = {"iss": self.issuer, "aud": CLIENT, "sub": "ann", "iat": now, "exp": now + 600, **(claims or {})}
        signing = key or self.key
        said = {name: value for name, value in known.items() if value is not None}
        return jwt.encode({"alg": "RS256", "kid": signing.kid, "typ": typ}, said, signing)

    def answer(self, path: str, given: dict[str, str]) -> tuple[int, dict[str, Any] | str]:
        """Status, and what is said: an object, or where the browser is sent."""
        if self.away:
            return 503, {"error": "temporarily_unavailable"}
        match path:
            case "/pool/.well-known/openid-configuration":
                places = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys",
                          "end_session_endpoint": "logout"}  # fmt: skip
                return 200, {"issuer": self.issuer} | {name: f"{self.issuer}/{last}" for name, last in places.items()}
            case "/pool/keys":
                return 200, {"keys": [self.key.as_dict(private=False)]}
            case "/pool/authorize":
                return 302, f"{given['redirect_uri']}?{urlencode(self._decision(given))}"
            case "/pool/token":
                asked = self.attempts.pop(given["code"], {})
                verified = asked.get("code_challenge") == create_s256_code_challenge(given["code_verifier"])
                if not verified or asked["redirect_uri"] != given["redirect_uri"]:
                    return 400, {"error": "invalid_grant"}
                if given.get("client_secret") != self.secret:
                    return 401, {"error": "invalid_client"}
                claims = {"nonce": asked.get("nonce"), **self.claims}
                return 200, {"id_token": self.token(claims), "token_type": "Bearer"}
        return 404, {"error": "not_found"}

    def _decision(self, given: dict[str, str]) -> dict[str, str]:
        if self.refuses:
            return {"error": "access_denied", "error_description": "<b>not</b> today", "state": given["state"]}
        code = secrets.token_urlsafe(16)
        assert given["code_challenge_method"] == "S256"
        self.attempts[code] = given
        if "acr_values" in given:  # the level that was asked for is what the person then shows
            self.claims = {**self.claims, "acr": given["acr_values"]}
        return {"code": code, "state": given["state"], "iss": self.issuer}


@contextmanager
def oidc_provider() -> Iterator[OidcProvider]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(urlsplit(self.path).query)

        def do_POST(self) -> None:
            self._answer(self.rfile.read(int(self.headers["Content-Length"])).decode())

        def _answer(self, query: str) -> None:
            given = {name: values[0] for name, values in parse_qs(query).items()}
            status, said = provider.answer(urlsplit(self.path).path, given)
            body = b"" if isinstance(said, str) else json.dumps(said).encode()
            body = provider.instead.get(urlsplit(self.path).path, body)
            self.send_response(status)
            if isinstance(said, str):
                self.send_header("Location", said)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the library's name)
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        provider = OidcProvider(server.server_port)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield provider
        server.shutdown()
        thread.join()
