# SPDX-License-Identifier: Apache-2.0
"""A VM's memory and the state of its devices to its host's disk, and back."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.actions.host_actions import HostAction, StartDomain


@dataclass(frozen=True, kw_only=True)
class SuspendDomain(HostAction):
    """Write the memory of a VM that runs, and the state of its devices, to a file of its own; it does not run then.
    Refused while nothing has changed where the file has no room. Starting it goes on from the file, which goes then."""

    since = 11
    vm: str
    max_bytes: int
    """What the file may come to."""

    @property
    def limit_s(self) -> int:
        """Seconds that it may take."""
        return _file_s(self.max_bytes)

    def inverse(self) -> HostAction:
        return ResumeDomain(vm=self.vm, memory_bytes=self.max_bytes)


@dataclass(frozen=True, kw_only=True)
class ResumeDomain(StartDomain):
    """Start it from the file; without one from its disk, as :class:`StartDomain` does."""

    since = 11
    memory_bytes: int
    """What is read before it runs."""

    @property
    def limit_s(self) -> int:
        """Seconds that it may take."""
        return _file_s(self.memory_bytes)

    def inverse(self) -> HostAction:
        return SuspendDomain(vm=self.vm, max_bytes=self.memory_bytes)


def _file_s(size_bytes: int) -> int:
    """A disk that is slow for hosts with GPUs has 50 MB/s."""
    return 300 + size_bytes // 50_000_000
