# SPDX-License-Identifier: Apache-2.0
"""Answers kept for requests that are sent again."""

from __future__ import annotations

from typing import Protocol

from orchestrator.core.tenancy.request_key import StoredRequest


class RequestKeys(Protocol):
    """What was asked under idempotency keys."""

    def find(self, actor: str, key: str) -> StoredRequest | None: ...
    def put(self, kept: StoredRequest) -> None:
        """Replaces the one there was."""

    def remove(self, actor: str, key: str) -> None: ...
    def forget(self, *, before: float) -> None:
        """All that were begun earlier."""

    def forget_more(self, actor: str, most: int) -> None:
        """All of the actor but the newest ones."""
