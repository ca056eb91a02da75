# SPDX-License-Identifier: Apache-2.0
"""What was put into guests."""

from __future__ import annotations

from typing import Protocol

from orchestrator.core.guest.guest import GuestRecord


class GuestRecords(Protocol):
    def get(self, vm: str) -> GuestRecord:
        """An empty one when nothing is known of the VM's guest."""

    def list(self) -> tuple[GuestRecord, ...]:
        """Of all VMs of whose guests something is known, by VM."""

    def put(self, record: GuestRecord) -> None:
        """In the place of the one of that VM. Nothing, when the VM is gone."""
