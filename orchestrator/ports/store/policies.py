# SPDX-License-Identifier: Apache-2.0
"""Tenants' rules for leases and priorities."""

from __future__ import annotations

from typing import Protocol

from orchestrator.core.lease import TenantPolicy


class Policies(Protocol):
    def get(self, tenant: str) -> TenantPolicy:
        """The one that says nothing, where none was set."""

    def put(self, tenant: str, policy: TenantPolicy) -> None:
        """Replaces the one there was."""
