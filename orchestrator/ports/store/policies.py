# SPDX-License-Identifier: Apache-2.0
"""Tenants' rules for leases and priorities."""

from __future__ import annotations

from typing import Protocol

from orchestrator.core.vms.isolation import Isolation
from orchestrator.core.vms.lease import TenantPolicy


class Policies(Protocol):
    def get(self, tenant: str) -> TenantPolicy:
        """The one that says nothing, where none was set."""

    def isolations(self) -> dict[str, Isolation]:
        """Of the tenants that have another one than :data:`DEFAULT_ISOLATION`."""

    def driver_upgrades(self) -> dict[str, str]:
        """Of the tenants whose VMs may not be stopped at any time for a driver upgrade (core/drivers/leaving)."""

    def put(self, tenant: str, policy: TenantPolicy) -> None:
        """Replaces the one there was."""
