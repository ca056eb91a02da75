# SPDX-License-Identifier: Apache-2.0
"""By what a browser's requests are known: a session in a cookie, and the ticket that it may be had for.

A session holds the proof itself, encrypted: the server asks at each request whether it still holds, so a session ends
when its token ends or is revoked.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from orchestrator.core.foreign_json import parse_json
from orchestrator.store.secrets import SecretBox, Unreadable

COOKIE: Final = "__Host-vgpuctl"
SESSION_S: Final = 12 * 3600.0
TICKET_S: Final = 60.0
MAX_COOKIE: Final = 3800
"""Browsers drop a cookie of over 4096 bytes, its attributes included, without a word."""
MAX_TICKETS: Final = 256
_ROW: Final = "web.session"
"""What a session is bound to, so that no other stored secret can be shown as one."""


@dataclass(frozen=True, kw_only=True)
class Proof:
    """Who asks: a token's text, or the uid of a user of the server's machine that its kernel vouched for."""

    token: str | None = None
    uid: int | None = None


class BrowserSessions:
    """Cookies under the key ring of the database, which all controllers share."""

    def __init__(self, ring: bytes, now: Callable[[], float]) -> None:
        self._box = SecretBox(ring)
        self._now = now

    def seal(self, proof: Proof, host: str | None = None) -> str | None:
        """The cookie's value; None: it would be too long for a browser. ``host``: the one that it is good at; None: all
        that controllers have on the network."""
        content = {"token": proof.token, "uid": proof.uid, "end": self._now() + SESSION_S, "host": host}
        value = base64.urlsafe_b64encode(self._box.close(_ROW, json.dumps(content))).decode()
        return value if len(value) <= MAX_COOKIE else None

    def open(self, value: str, host: str | None = None) -> Proof | None:
        """None: it is none of ours, it is of another host, or it is over."""
        try:
            content = parse_json(self._box.open(_ROW, base64.b64decode(value, altchars=b"-_", validate=True)).encode())
        except (ValueError, Unreadable):
            return None
        if not isinstance(content, dict) or content["end"] <= self._now() or content["host"] != host:
            return None
        return Proof(token=content["token"], uid=content["uid"])


@dataclass
class Tickets:
    """Each is good once, for a minute, in the process that gave it."""

    now: Callable[[], float]
    _kept: dict[bytes, tuple[Proof, float]] = field(default_factory=dict)

    def give(self, proof: Proof) -> str:
        """The oldest ones go where there are too many."""
        ticket = secrets.token_urlsafe(32)
        while len(self._kept) >= MAX_TICKETS:
            self._kept.pop(next(iter(self._kept)))
        self._kept[_digest(ticket)] = proof, self.now() + TICKET_S
        return ticket

    def take(self, ticket: str) -> Proof | None:
        """None: there is no such ticket, it was taken, or its minute is over."""
        proof, end = self._kept.pop(_digest(ticket), (None, 0.0))
        return proof if end > self.now() else None


def _digest(ticket: str) -> bytes:
    return hashlib.sha256(ticket.encode()).digest()
