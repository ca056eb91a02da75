# SPDX-License-Identifier: Apache-2.0
"""By what a browser's requests are known: a session in cookies, and the ticket that it may be had for.

A session holds the proof itself, encrypted: the server asks at each request whether it still holds, so a session ends
when its token ends or is revoked.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from starlette.responses import Response

from orchestrator.core.foreign_json import parse_json
from orchestrator.store.secrets import SecretBox, Unreadable

COOKIE: Final = "__Host-vgpuctl"
MAX_COOKIE: Final = 3800
"""Browsers drop a cookie of over 4096 bytes, its attributes included, without a word."""
COOKIES: Final = (COOKIE, f"{COOKIE}-2", f"{COOKIE}-3")
"""A provider's token may need them all; more would not fit into the 16 KiB of a request's head."""
SESSION_S: Final = 12 * 3600.0
TICKET_S: Final = 60.0
MAX_TICKETS: Final = 8
"""Of one person; the oldest of them goes."""
ATTEMPT_COOKIE: Final = f"{COOKIE}-login"
ATTEMPT_S: Final = 600.0
SECRET_COOKIE: Final = f"{COOKIE}-new"
SECRET_S: Final = 60.0
SameSite = Literal["lax", "strict"]
_SESSION_ROW: Final = "web.session.3"
_ATTEMPT_ROW: Final = "web.login"
_ONCE_ROW: Final = "web.once"
"""What they are bound to, so that neither can be shown as the other, nor any other stored secret as one."""


@dataclass(frozen=True, kw_only=True)
class Proof:
    """Who asks: a token's text, or the uid of a user of the server's machine that its kernel vouched for."""

    token: str | None = None
    uid: int | None = None

    @property
    def digest(self) -> str:
        """By which it is known where it may not be kept."""
        return _digest(f"uid:{self.uid}" if self.token is None else self.token).hex()


@dataclass(frozen=True, kw_only=True)
class Session:
    """``id``: drawn at the login; ``end``: seconds since the epoch, when it is over in any case."""

    proof: Proof
    id: str
    end: float


@dataclass(frozen=True, kw_only=True)
class LoginAttempt:
    """What a browser that was sent to the identity provider keeps. ``kept``: of that login; ``target``: the page that
    it goes on to."""

    kept: dict[str, str]
    target: str


def keep_cookie(answer: Response, name: str, value: str, life_s: float, samesite: SameSite = "lax") -> None:
    """No script reads it; ``__Host-`` cookies are taken with this path over TLS alone (RFC 6265bis §4.1.3.2)."""
    answer.set_cookie(name, value, int(life_s), path="/", secure=True, httponly=True, samesite=samesite)


def drop_cookie(answer: Response, name: str, samesite: SameSite = "lax") -> None:
    """``samesite``: as it was kept."""
    answer.delete_cookie(name, path="/", secure=True, httponly=True, samesite=samesite)


class BrowserSessions:
    """Cookies under the key ring of the database, which all controllers share."""

    def __init__(self, ring: bytes, now: Callable[[], float]) -> None:
        self._box = SecretBox(ring)
        self._now = now

    def seal(self, proof: Proof, host: str | None = None) -> dict[str, str] | None:
        """Cookies by name; None: they would be too long for a browser. ``host``: the one that they are good at; None:
        all that controllers have on the network."""
        content = {"token": proof.token, "uid": proof.uid, "host": host, "id": secrets.token_hex(16)}
        value = self._seal(_SESSION_ROW, content, SESSION_S)
        parts = [value[start : start + MAX_COOKIE] for start in range(0, len(value), MAX_COOKIE)]
        if len(parts) > len(COOKIES):
            return None
        parts[0] = f"{len(parts)}.{parts[0]}"  # what a longer session has left is no part of this one
        return dict(zip(COOKIES, parts, strict=False))

    def open(self, cookies: Mapping[str, str], host: str | None = None) -> Session | None:
        """None: they hold none of ours, it is of another host, or it is over."""
        count, _, first = cookies.get(COOKIE, "").partition(".")
        if not count.isascii() or not count.isdigit() or len(count) > 1:
            return None
        rest = [cookies.get(name, "") for name in COOKIES[1 : int(count)]]
        content = self._open(_SESSION_ROW, "".join([first, *rest]))
        if content is None or content["host"] != host or (content["uid"] is not None and host is None):
            return None
        return Session(proof=Proof(token=content["token"], uid=content["uid"]), id=content["id"], end=content["end"])

    def seal_attempt(self, attempt: LoginAttempt) -> str:
        return self._seal(_ATTEMPT_ROW, {"kept": attempt.kept, "target": attempt.target}, ATTEMPT_S)

    def open_attempt(self, value: str) -> LoginAttempt | None:
        """None: it is none of ours, or its ten minutes are over."""
        content = self._open(_ATTEMPT_ROW, value)
        return None if content is None else LoginAttempt(kept=content["kept"], target=content["target"])

    def seal_secret(self, secret: str, back: str) -> str:
        """What is shown once, and the address to go back to from there."""
        return self._seal(_ONCE_ROW, {"secret": secret, "back": back}, SECRET_S)

    def open_secret(self, value: str) -> tuple[str, str] | None:
        """None: it is none of ours, or its minute is over."""
        content = self._open(_ONCE_ROW, value)
        return None if content is None else (content["secret"], content["back"])

    def _seal(self, row: str, content: dict[str, Any], life_s: float) -> str:
        text = json.dumps({**content, "end": self._now() + life_s})
        return base64.urlsafe_b64encode(self._box.close(row, text)).decode()

    def _open(self, row: str, value: str) -> dict[str, Any] | None:
        """Who changes what is sealed in a row gives it another name: what was sealed before is then unreadable."""
        try:
            content = parse_json(self._box.open(row, base64.b64decode(value, altchars=b"-_", validate=True)).encode())
        except (ValueError, Unreadable):
            return None
        return content if isinstance(content, dict) and content["end"] > self._now() else None


@dataclass
class Tickets:
    """Each is good once, for a minute, in the process that gave it."""

    now: Callable[[], float]
    _kept: dict[bytes, tuple[str, Proof, float]] = field(default_factory=dict)

    def give(self, proof: Proof, person: str) -> str:
        """``person``: whose it is, as the audit names them; nobody's tickets push out another's."""
        ticket, now = secrets.token_urlsafe(32), self.now()
        self._kept = {digest: kept for digest, kept in self._kept.items() if kept[2] > now}
        theirs = [digest for digest, kept in self._kept.items() if kept[0] == person]
        if len(theirs) >= MAX_TICKETS:
            del self._kept[theirs[0]]
        self._kept[_digest(ticket)] = person, proof, now + TICKET_S
        return ticket

    def take(self, ticket: str) -> Proof | None:
        """None: there is no such ticket, it was taken, or its minute is over."""
        _, proof, end = self._kept.pop(_digest(ticket), ("", None, 0.0))
        return proof if end > self.now() else None


def _digest(ticket: str) -> bytes:
    return hashlib.sha256(ticket.encode()).digest()
