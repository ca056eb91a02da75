# SPDX-License-Identifier: Apache-2.0
"""Data volumes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from orchestrator.core.labels import About
from orchestrator.core.vms.claim import HostCapacity
from orchestrator.core.vms.volume import Volume


class Volumes(Protocol):
    """What each takes of its host's disk is counted with the host's claims."""

    def add(self, volume: Volume, capacity: HostCapacity | None) -> None:
        """``capacity``: of its host, when it is to lie on one already.

        :raises Conflict: ``volume.exists``; :raises ClaimLost: the host has too little disk left"""

    def find(self, tenant: str, name: str) -> Volume | None: ...
    def find_id(self, volume_id: str) -> Volume | None: ...
    def list(self, *, tenant: str | None = None, host: str | None = None) -> tuple[Volume, ...]:
        """By tenant and name."""

    def attach(self, volume: Volume, vm: str, host: str, capacity: HostCapacity) -> None:
        """It lies on the host from now on. ``capacity``: of that host.

        :raises ClaimLost: it is another VM's, on another host or gone, or the host has too little disk left
        """

    def made(self, volume_id: str) -> None:
        """Its file is there."""

    def detach(self, volume_id: str, vm: str) -> None:
        """Nobody has it, if the VM had it."""

    def put_back(self, before: Iterable[Volume], vm: str) -> None:
        """As they were before the VM was to have them; those that are not the VM's any more stay as they are."""

    def deleting(self, volume_id: str, *, ready: bool = False) -> None:
        """It is being deleted, or with ``ready`` not any more."""

    def lose(self, host: str) -> int:
        """Those on the host are lost; how many they are."""

    def describe(self, volume_id: str, about: About) -> None:
        """What people say of it."""

    def remove(self, volume_id: str) -> None:
        """Gone already is fine."""
