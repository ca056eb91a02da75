# SPDX-License-Identifier: Apache-2.0
"""What a provider publishes about itself: where it logs people in, and the keys it signs with."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2

from orchestrator.adapters.whole_answer import Pace, paced
from orchestrator.core.errors import InvalidInput, Retryable
from orchestrator.core.foreign_json import parse_json
from orchestrator.regular_file import read_certificates

_TIMEOUT: Final = httpx2.Timeout(10.0)
_WHOLE_S: Final = 20.0
"""For an answer, however slowly it comes."""
_MAX_BYTES: Final = 1024 * 1024
_PRINTABLE: Final = re.compile("[!-~]{1,2000}", re.ASCII)
"""It goes to a terminal, a browser and a request."""
_NO_ANSWER: Final = (
    httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, httpx2.CookieConflict, OSError, ValueError,
)  # fmt: skip
_LOOPBACK: Final = {"127.0.0.1", "::1", "localhost"}


@dataclass(frozen=True, kw_only=True)
class Provider:
    """``issuer`` as its tokens name it; ``ca_file``: PEM file of whom to trust, None: whom this machine trusts."""

    issuer: str
    ca_file: Path | None = None

    def metadata(self) -> dict[str, Any]:
        """Discovery 1.0 §4. :raises Retryable: ``login.unreachable``"""
        document = self.get(f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
        if document.get("issuer") != self.issuer:
            raise self._strange(f"it calls itself {str(document.get('issuer'))[:200]!a}")
        return document

    def get(self, url: str) -> dict[str, Any]:
        """A JSON object. :raises Retryable: ``login.unreachable``"""
        return self._asked("GET", url, None)

    def post(self, url: str, form: dict[str, str]) -> dict[str, Any]:
        """What it answers to a form, refusals too. :raises Retryable: ``login.unreachable``"""
        return self._asked("POST", url, form)

    def _asked(self, method: str, url: str, form: dict[str, str] | None) -> dict[str, Any]:
        check_address(url)
        try:
            answer = parse_json(self._body(method, url, form))
        except _NO_ANSWER as error:
            raise self._strange(str(error)) from error
        if not isinstance(answer, dict):
            raise self._strange("no JSON object")
        return answer

    def _body(self, method: str, url: str, form: dict[str, str] | None) -> bytes:
        own = self.ca_file
        trust = (
            httpx2.create_ssl_context() if own is None else ssl.create_default_context(cadata=read_certificates(own))
        )
        body = b""
        with (
            httpx2.Client(verify=trust, timeout=_TIMEOUT, trust_env=not _is_here(url)) as client,
            client.stream(
                method,
                url,
                data=form,
                headers={"Accept": "application/json"},
                extensions={"trace": paced(Pace(_WHOLE_S), httpx2.ReadTimeout)},
            ) as response,
        ):
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > _MAX_BYTES:
                    break
        return body[:_MAX_BYTES]

    def _strange(self, details: str) -> Retryable:
        return Retryable(
            "login.unreachable", f"{self.issuer} does not answer as a provider", hint=_HINT, details=details[:300]
        )


def check_address(url: str) -> None:
    """Only TLS, but for a provider on this very machine. :raises InvalidInput: ``login.issuer_invalid``"""
    try:
        parts = urlsplit(url)
        good = (
            _PRINTABLE.fullmatch(url) is not None
            and bool(parts.hostname)
            and (parts.scheme == "https" or (parts.scheme == "http" and _is_here(url)))
        )
    except ValueError:
        good = False
    if not good:
        raise InvalidInput("login.issuer_invalid", f"{url[:200]!a} is no provider's address", hint="https://HOST/PATH")


def _is_here(url: str) -> bool:
    """On this machine: no proxy leads there, and nobody listens on the way."""
    return urlsplit(url).hostname in _LOOPBACK


_HINT: Final = "is its address right, and does this machine reach it?"
