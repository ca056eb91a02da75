# SPDX-License-Identifier: Apache-2.0
"""VMs as they should be."""

from __future__ import annotations

from typing import Protocol

from orchestrator.core.vm import Vm


class Vms(Protocol):
    def add(self, vm: Vm) -> None:
        """:raises Conflict: ``vm.exists``"""

    def find(self, tenant: str, name: str) -> Vm | None: ...
    def find_id(self, vm_id: str) -> Vm | None: ...
    def list(self, *, tenant: str | None = None, host: str | None = None) -> tuple[Vm, ...]:
        """By tenant and name."""

    def lease_over(self, host: str, at: float) -> tuple[Vm, ...]:
        """Those on the host whose lease has ended and that still have their place, by tenant and name."""

    def update(self, vm: Vm) -> None: ...
    def remove(self, vm_id: str) -> None:
        """With its claims. Gone already is fine."""
