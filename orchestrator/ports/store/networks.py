# SPDX-License-Identifier: Apache-2.0
"""Networks that VMs are put on, by their names on hosts (core/vms/network.py)."""

from __future__ import annotations

from typing import Protocol

from orchestrator.core.hosts.bridges import Uplink
from orchestrator.core.vms.network import Network


class Networks(Protocol):
    def add(self, network: Network) -> None:
        """:raises Conflict: ``network.exists``"""

    def find(self, name: str) -> Network | None: ...

    def get(self, name: str) -> Network:
        """:raises NotFound: ``network.unknown``"""

    def list(self) -> tuple[Network, ...]: ...

    def uplinks(self) -> dict[str, Uplink]:
        """Of those on bridges of hosts, by name."""

    def update(self, network: Network) -> None:
        """By its name."""

    def remove(self, name: str) -> None:
        """Gone already is fine."""
