# SPDX-License-Identifier: Apache-2.0
"""Hosts that were added, their GPUs and the last snapshot of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.mig_layout import MigLayout
from orchestrator.core.hosts.snapshot import HostSnapshot


class Hosts(Protocol):
    def add(self, host: Host) -> None:
        """:raises Conflict: ``host.exists``, ``host.address_taken``"""

    def get(self, name: str) -> Host:
        """:raises NotFound: ``host.unknown``"""

    def list(self) -> tuple[Host, ...]: ...
    def silent(self) -> dict[str, float | None]:
        """Those that do not answer, or may not be believed: when they last were seen."""

    def update(self, host: Host) -> None:
        """Everything but the list of managed GPUs, their layouts, and the CPUs that are kept."""

    def keep_cpus(self, name: str, cpus: Sequence[int]) -> None:
        """For VMs that have theirs alone. :raises Conflict: ``host.has_vms``: VMs have a place there"""

    def observed(self, name: str, at: float) -> None:
        """When the last observation that it answered began; nothing else of it. Gone already is fine."""

    def set_gpus(self, name: str, gpus: Sequence[str]) -> None: ...
    def mark_enabled(self, name: str, gpu: str, *, by_us: bool) -> None:
        """Remember that it was us who switched a GPU's virtual functions on."""

    def enabled_by_us(self, name: str) -> tuple[str, ...]: ...
    def keep_layout(self, name: str, layout: MigLayout) -> None:
        """In place of the one that the GPU has. :raises ClaimLost: VMs have a claim on it, or it is not managed"""

    def drop_layout(self, name: str, gpu: str) -> None:
        """VMs may have the GPU again. It has none already is fine."""

    def remove(self, name: str) -> None:
        """With its snapshot, GPUs and their layouts. Gone already is fine."""

    def put_snapshot(self, name: str, snapshot: HostSnapshot, turn: int) -> bool:
        """``turn``: the newest one (Operations.turn) when the observation began. False: a later one is stored already,
        or the host is gone, and this one is ignored."""

    def snapshot(self, name: str) -> HostSnapshot | None: ...
    def snapshot_turn(self, name: str) -> int | None:
        """The newest turn when the observation that gave the snapshot began."""
