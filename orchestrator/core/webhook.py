# SPDX-License-Identifier: Apache-2.0
"""Addresses that are told what happens: what a request to one carries, and where none may go. Pure."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.core.errors import InvalidInput
from orchestrator.core.event import EventFilter, Noun
from orchestrator.core.tenancy.access import EVERYWHERE

MAX_OF_TENANT: Final = 16
MAX_URL: Final = 500
_MAX_PORT: Final = 65535
_URL: Final = re.compile(
    r"https://(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?)"
    r"(?::(?P<port>[1-9][0-9]{0,4}))?(?:[/?][!\"$-~]*)?",
    re.ASCII,
)
DEAD_AFTER_S: Final = 86_400.0
"""Nothing is sent any more after so long without an answer."""
_FIRST_PAUSE_S: Final = 2.0
_LONGEST_PAUSE_S: Final = 900.0


@dataclass(frozen=True, kw_only=True)
class Webhook:
    """Somebody who wants to be told."""

    id: str
    """Stays the same for ever."""
    tenant: str
    """Whose; *: the pool's, which is told everything."""
    name: str
    """What it is called."""
    url: str
    """Where events are sent."""
    nouns: tuple[Noun, ...]
    """Only about these; empty: about everything."""
    created_at: float
    """When it was made."""
    position: int
    """The number of the last event that it was told of, or that does not concern it."""
    failed: int = 0
    """How often one after the other it could not be told."""
    failing_since: float | None = None
    """Seconds since the epoch; None: the last request was answered."""
    next_at: float = 0.0
    """Not before then."""
    why: str | None = None
    """What came of the last request; None: it was answered."""
    dead: bool = False
    """Nothing is sent any more: it has failed for too long."""

    @property
    def only(self) -> EventFilter:
        """What it is told of."""
        tenants = None if self.tenant == EVERYWHERE else frozenset({self.tenant})
        return EventFilter(tenants=tenants, nouns=frozenset(self.nouns))


def check_url(url: str) -> str:
    """:raises InvalidInput: ``webhook.url_invalid``"""
    matched = _URL.fullmatch(url) if len(url) <= MAX_URL else None
    if matched is None or int(matched["port"] or 443) > _MAX_PORT:
        raise InvalidInput(
            "webhook.url_invalid",
            f"{url[:80]!a} is no address that events are sent to",
            hint="an https:// address without user, password and #: https://example.org/hook",
        )
    return url


def pause_s(failed: int) -> float:
    """After so many failures one after the other, one at least: twice as long each time, up to 15 minutes."""
    return min(_FIRST_PAUSE_S * float(2 ** min(failed - 1, 20)), _LONGEST_PAUSE_S)


def signature(secret: str, at: int, body: bytes) -> str:
    """The header's value: the time of the request (seconds since the epoch) and the HMAC-SHA256 of ``TIME.BODY``."""
    signed = hmac.new(secret.encode(), b"%d." % at + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={signed}"


def after_failure(webhook: Webhook, why: str, now: float) -> dict[str, object]:
    """The fields that change."""
    since = webhook.failing_since if webhook.failing_since is not None else now
    failed = webhook.failed + 1
    dead = now - since >= DEAD_AFTER_S
    return {"failed": failed, "failing_since": since, "next_at": now + pause_s(failed), "why": why, "dead": dead}


ANSWERED: Final[dict[str, object]] = {"failed": 0, "failing_since": None, "next_at": 0.0, "why": None, "dead": False}
"""Fields of one whose last request was answered."""


def due(webhooks: Sequence[Webhook], now: float) -> tuple[Webhook, ...]:
    """Those that may be told now. After a clock that went back nobody waits longer than the longest pause."""
    return tuple(
        webhook for webhook in webhooks
        if not webhook.dead and not now < webhook.next_at <= now + _LONGEST_PAUSE_S
    )  # fmt: skip
