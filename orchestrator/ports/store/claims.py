# SPDX-License-Identifier: Apache-2.0
"""Claims on GPU slots, functions and shares of hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from orchestrator.core.vms.claim import Claim, HostCapacity


class ClaimLost(Exception):
    """Somebody else took a slot, function or share of the host meanwhile. Plan again."""


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    """A tenant with a place on a GPU."""

    tenant: str
    gpu: str
    cut: str
    scheduled: bool
    """Whether its VM there asks for a scheduler of the GPU."""


class Claims(Protocol):
    def take(self, claim: Claim, capacity: HostCapacity) -> None:
        """Also for a VM that is deallocated and kept its disk.

        :raises ClaimLost: the transaction must be given up
        """

    def neighbours(self, host: str, tenant: str) -> Sequence[Neighbour]:
        """GPUs of the host on which VMs of other tenants have a place, or one that asks for a scheduler has."""

    def list(self) -> tuple[Claim, ...]:
        """Of all VMs that have a place, by VM."""

    def of_host(self, host: str) -> tuple[Claim, ...]:
        """Of VMs that have a place there."""

    def find(self, vm_id: str) -> Claim | None:
        """None: no such VM, or it has no place."""

    def free_place(self, vm_id: str) -> None:
        """All but the disk. Free already is fine."""

    def move_function(self, vm_id: str, device: int, function: str | None) -> None:
        """:raises ClaimLost: another VM has it"""
