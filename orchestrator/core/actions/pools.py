# SPDX-License-Identifier: Apache-2.0
"""What is done to pools on a host that has them mounted, as values (core/actions/host_actions.py).

A disk or volume of a pool is one host's at a time: a file beside it, the lease, names the machine that may open it. A
host that only knows of the file neither opens nor removes it.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.actions.host_actions import HostAction


@dataclass(frozen=True, kw_only=True)
class DeclarePool(HostAction):
    """Write a pool's id into the directory that is mounted under its name. Refused where nothing is mounted, and where
    it holds another id."""

    since = 11
    name: str
    pool_id: str

    def inverse(self) -> HostAction:
        return WithdrawPool(name=self.name, pool_id=self.pool_id)


@dataclass(frozen=True, kw_only=True)
class WithdrawPool(HostAction):
    """Remove a pool's id from its directory, with its base images. Refused while disks or volumes are there."""

    since = 11
    no_inverse = "it is declared anew"
    name: str
    pool_id: str


@dataclass(frozen=True, kw_only=True)
class ShareDisks(HostAction):
    """Write down that these files of pools are the VM's here too. With ``taken`` this host alone may open them from now
    on: refused while another one has one open for writing."""

    since = 11
    vm: str
    files: tuple[str, ...]
    """Names: of the VM's disk, of data volumes."""
    taken: bool = False

    def inverse(self) -> HostAction:
        return LeaveDisks(vm=self.vm, files=self.files)


@dataclass(frozen=True, kw_only=True)
class LeaveDisks(HostAction):
    """Write down that these files of pools are not the VM's on this host. They stay as they are."""

    since = 11
    no_inverse = "the host that has them says so"
    vm: str
    files: tuple[str, ...]
    """Empty: all that the host's ledger says are the VM's, also of data volumes that it has no more."""
