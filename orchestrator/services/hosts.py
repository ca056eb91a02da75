# SPDX-License-Identifier: Apache-2.0
"""Hosts: enrolling, looking, giving back."""

from __future__ import annotations

from typing import Protocol

from orchestrator.services.messages import AddHost, HostInfo, HostKey, Started


class HostService(Protocol):
    def scan(self, address: str, port: int) -> HostKey:
        """The SSH host key at that address, for the operator to confirm."""

    def add(self, request: AddHost) -> Started: ...

    def remove(self, name: str) -> Started:
        """:raises Conflict: ``host.has_vms``"""

    def upgrade_agent(self, name: str) -> Started: ...

    def list(self) -> tuple[HostInfo, ...]: ...

    def get(self, name: str) -> HostInfo:
        """:raises NotFound: ``host.unknown``"""

    def cordon(self, name: str) -> HostInfo: ...

    def uncordon(self, name: str) -> HostInfo: ...
