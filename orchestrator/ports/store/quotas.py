# SPDX-License-Identifier: Apache-2.0
"""Limits of tenants and of the pool, and what is held under them."""

from __future__ import annotations

from typing import Protocol

from orchestrator.core.tenancy.quota import Amounts, Limit


class Quotas(Protocol):
    def list(self) -> tuple[Limit, ...]:
        """Of all tenants and of the pool (``*``), by tenant and resource."""

    def used(self, tenant: str) -> Amounts:
        """What all its VMs and volumes hold. What is not named is not held."""

    def drawn(self, *, besides: str) -> Amounts:
        """What the tenants but for this one (``*``: all of them) have taken from the pool, where it has a limit."""

    def put(self, limit: Limit) -> None:
        """Replaces the one there was."""

    def remove(self, tenant: str, resource: str) -> None: ...
