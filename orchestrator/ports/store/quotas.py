# SPDX-License-Identifier: Apache-2.0
"""Limits of tenants and of the pool."""

from __future__ import annotations

from typing import Protocol

from orchestrator.core.quota import Limit


class Quotas(Protocol):
    def list(self) -> tuple[Limit, ...]:
        """Of all tenants and of the pool (``*``), by tenant and resource."""

    def lock(self, tenant: str) -> None:
        """What limits the tenant, its own and the pool, is not drawn on by others until the transaction ends."""

    def put(self, limit: Limit) -> None:
        """Replaces the one there was."""

    def remove(self, tenant: str, resource: str) -> None: ...
