# SPDX-License-Identifier: Apache-2.0
"""VMs as they should be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from orchestrator.core.gpu.device import Device
from orchestrator.core.vms.vm import DeallocationReason, Vm, VmSpec, VmState, WantedState


class Vms(Protocol):
    def add(self, vm: Vm) -> None:
        """:raises Conflict: ``vm.exists``; :raises ClaimLost: somebody makes it now, or its image is gone"""

    def find(self, tenant: str, name: str) -> Vm | None: ...
    def find_id(self, vm_id: str) -> Vm | None: ...
    def list(self, *, tenant: str | None = None, host: str | None = None) -> tuple[Vm, ...]:
        """By tenant and name."""

    def lease_over(self, host: str, at: float) -> tuple[Vm, ...]:
        """Those on the host whose lease has ended and that still have their place, by tenant and name."""

    def update(self, vm: Vm) -> None: ...
    def set_state(
        self,
        vm_id: str,
        state: VmState,
        *,
        operation: str,
        addresses: Sequence[str] | None = None,
        wanted: WantedState | None = None,
    ) -> None:
        """If ``operation`` is still the last one that was begun for it. ``addresses``: None leaves those of a VM that
        runs as they are; any other has none. ``wanted``: None leaves what is wanted of it."""

    def set_addresses(self, vm_id: str, addresses: Sequence[str]) -> None: ...
    def set_devices(self, vm_id: str, devices: Sequence[Device]) -> None: ...
    def set_spec(self, vm_id: str, spec: VmSpec) -> None:
        """Nothing but that, of one that keeps its name."""

    def deallocate(self, vm_id: str, why: DeallocationReason, devices: Sequence[Device]) -> None:
        """Stopped, without a place, with the devices that it had last."""

    def rename(self, vm_id: str, name: str) -> None:
        """:raises Conflict: ``vm.exists``"""

    def remove(self, vm_id: str) -> None:
        """With its claims. Gone already is fine."""
