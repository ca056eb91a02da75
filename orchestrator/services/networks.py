# SPDX-License-Identifier: Apache-2.0
"""Networks that VMs are put on."""

from __future__ import annotations

from typing import Protocol

from orchestrator.core.network import Network


class NetworkService(Protocol):
    def add(self, name: str, subnet: str | None) -> Network:
        """A libvirt NAT network; ``subnet`` as ``10.88.1.0/24``, None: the next free one."""

    def list(self) -> tuple[Network, ...]: ...
