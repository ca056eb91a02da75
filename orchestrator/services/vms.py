# SPDX-License-Identifier: Apache-2.0
"""VMs as their users see them."""

from __future__ import annotations

from typing import Protocol

from orchestrator.core.vm import Vm
from orchestrator.ports.host import ByteStream
from orchestrator.services.messages import CreateVm, DryRun, Started


class VmService(Protocol):
    def create(self, request: CreateVm) -> Started:
        """Claim a device and start making the VM. The same request again is answered with what it started before.

        :raises InvalidInput: a bad name, number, key; ``profile.unknown``, ``image.unknown``, ``network.unknown``
        :raises Conflict: ``vm.exists`` when the name is taken by another specification
        :raises NoCapacity: ``gpu.no_capacity`` with reasons
        """

    def plan(self, request: CreateVm) -> DryRun:
        """What :meth:`create` would do; raises what it would raise."""

    def get(self, tenant: str, name: str) -> Vm:
        """:raises NotFound: ``vm.unknown``"""

    def list(self, tenant: str | None) -> tuple[Vm, ...]:
        """Of one tenant, or of all; by tenant and name."""

    def delete(self, tenant: str, name: str) -> Started:
        """Give everything back. A create that still runs is cancelled and undone first."""

    def start(self, tenant: str, name: str) -> Started: ...

    def stop(self, tenant: str, name: str) -> Started:
        """Shut down (power off after a grace time) and remove the device; the claim stays."""

    def open_console(self, tenant: str, name: str) -> ByteStream: ...

    def open_tcp(self, tenant: str, name: str, port: int) -> ByteStream: ...
