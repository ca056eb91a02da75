# SPDX-License-Identifier: Apache-2.0
"""Networks that VMs are put on."""

from __future__ import annotations

from typing import Protocol

from orchestrator.core.network import Network


class Networks(Protocol):
    def add(self, network: Network) -> None:
        """:raises Conflict: ``network.exists``"""

    def get(self, name: str) -> Network:
        """:raises NotFound: ``network.unknown``"""

    def list(self) -> tuple[Network, ...]: ...
