# SPDX-License-Identifier: Apache-2.0
"""What is done to data volumes on a host, as values (core/actions/host_actions.py)."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.actions.host_actions import HostAction


@dataclass(frozen=True, kw_only=True)
class CreateDataVolume(HostAction):
    """An empty disk that is no VM's: a raw file with holes. One that is there is left as it is."""

    since = 7
    volume: str
    """File name, ``name.id.raw``; the ledger knows it by the id."""
    size_bytes: int

    def inverse(self) -> HostAction:
        return DeleteDataVolume(volume=self.volume)


@dataclass(frozen=True, kw_only=True)
class DeleteDataVolume(HostAction):
    """Refused while a VM has it."""

    since = 7
    no_inverse = "what was on it is gone"
    volume: str


@dataclass(frozen=True, kw_only=True)
class AttachVolume(HostAction):
    """Write down that the VM has the data volume, so that its domain may take it. Refused while another VM has it, and
    when it is not there."""

    since = 7
    vm: str
    volume: str

    def inverse(self) -> HostAction:
        return DetachVolume(vm=self.vm, volume=self.volume)


@dataclass(frozen=True, kw_only=True)
class DetachVolume(HostAction):
    """Write down that the VM does not have it any more. Refused while something has it open."""

    since = 7
    vm: str
    volume: str

    def inverse(self) -> HostAction:
        return AttachVolume(vm=self.vm, volume=self.volume)
