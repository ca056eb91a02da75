# SPDX-License-Identifier: Apache-2.0
"""A request under a key of its own, so that sending it again cannot mean doing it again."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from orchestrator.core.errors import Conflict, InvalidInput

KEPT_S: Final = 86_400.0
"""How long a key stands for what was asked under it."""
MAX_KEY: Final = 200
MAX_KEYS: Final = 1000
"""Of one caller; those that were begun first are forgotten before their time."""
MAX_ANSWER: Final = 8192
"""Bytes of an answer that is kept. What answered with more is carried out again, and finds what the first one did."""
KEY_PATTERN: Final = f"^[!-~]{{1,{MAX_KEY}}}$"
"""As a regular expression of JSON Schema."""


@dataclass(frozen=True, kw_only=True)
class StoredRequest:
    """What was asked under a key, as a fingerprint, and what was answered."""

    actor: str
    """Whose key it is: two callers may use the same one for different things."""
    key: str
    fingerprint: str
    at: float
    status: int | None = None
    """None: not answered yet, or the server ended before it could be written down."""
    answer: str | None = None


def check_key(text: str) -> str:
    """:raises InvalidInput: ``request.key_invalid``"""
    if re.fullmatch(KEY_PATTERN, text, re.ASCII) is None:
        raise InvalidInput(
            "request.key_invalid",
            "the idempotency key is none",
            hint=f"1 to {MAX_KEY} printable ASCII characters without spaces, for example a UUID",
        )
    return text


def check_same(kept: StoredRequest, fingerprint: str) -> None:
    """:raises Conflict: ``request.key_reused``"""
    if kept.fingerprint != fingerprint:
        raise Conflict(
            "request.key_reused",
            "something else was asked under this idempotency key",
            hint="a new request needs a new key",
        )
