# SPDX-License-Identifier: Apache-2.0
"""Tokens, by their digests."""

from __future__ import annotations

from typing import Protocol

from orchestrator.core.tenancy.tenant import ApiToken


class Tokens(Protocol):
    def add(self, token: ApiToken) -> None: ...
    def find(self, token_id: str) -> ApiToken | None: ...
    def list(self, tenant: str) -> tuple[ApiToken, ...]:
        """By age."""

    def made_by(self, actor: str) -> tuple[ApiToken, ...]: ...
    def used(self, token_id: str, at: float) -> None: ...
    def revoke(self, token_id: str, at: float) -> None: ...
    def forget_ended(self, tenant: str, now: float, most: int) -> None:
        """Of those that are revoked or over, all but the newest ones."""
