# SPDX-License-Identifier: Apache-2.0
"""Tokens, by their digests."""

from __future__ import annotations

from typing import Protocol

from orchestrator.core.tenant import Token


class Tokens(Protocol):
    def add(self, token: Token) -> None: ...
    def find(self, token_id: str) -> Token | None: ...
    def list(self, tenant: str) -> tuple[Token, ...]:
        """By age."""

    def revoke(self, token_id: str, at: float) -> None: ...
