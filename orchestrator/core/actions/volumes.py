# SPDX-License-Identifier: Apache-2.0
"""What is done to data volumes on a host, and to devices of domains, as values (core/actions/host_actions.py)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from orchestrator.core.actions.disk_snapshots import LongCopy
from orchestrator.core.actions.host_actions import HostAction
from orchestrator.core.hosts.domain import DomainDescription
from orchestrator.core.hosts.volume_key import VolumeKey

NEVER_SHRINKS: Final = "a disk never shrinks: its guest may have written behind its old end"


@dataclass(frozen=True, kw_only=True)
class CreateDataVolume(HostAction):
    """An empty disk that is no VM's: a raw file with holes, or an encrypted one. One that is there is left as it is."""

    since = 7
    volume: str
    """File name, ``name.id.raw``; the ledger knows it by the id."""
    size_bytes: int
    """What a guest sees of it."""
    passphrase: str = field(default="", repr=False)
    """Of one that is encrypted."""

    def inverse(self) -> HostAction:
        return DeleteDataVolume(volume=self.volume)


@dataclass(frozen=True, kw_only=True)
class DeleteDataVolume(HostAction):
    """Refused while a VM has it, and in a pool while another host may open it."""

    since = 7
    no_inverse = "what was on it is gone"
    volume: str
    gone: str | None = None
    """Machine id of a host that is given up: its lease counts no more."""


@dataclass(frozen=True, kw_only=True)
class LinkDataVolume(HostAction):
    """A second name of a data volume's file, by which one VM reads it. One that is there is left as it is. Refused
    while a VM has the volume for writing, and in a pool while another host may open it so."""

    since = 11
    volume: str
    """The second name, ``name.id.volume.ro.raw``."""
    of: str
    gone: str | None = None
    """As of :class:`DeleteDataVolume`."""

    def inverse(self) -> HostAction:
        return DeleteDataVolume(volume=self.volume, gone=self.gone)


@dataclass(frozen=True, kw_only=True)
class AttachVolume(HostAction):
    """Write down that the VM has the data volume, so that its domain may take it. Refused while another VM has it, and
    when it is not there, and in a pool while another host may open it."""

    since = 7
    vm: str
    volume: str
    gone: str | None = None
    """As of :class:`DeleteDataVolume`."""

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


@dataclass(frozen=True, kw_only=True)
class GrowDataVolume(HostAction):
    """A data volume gets that size, and a guest that has it learns of it. Refused where it is larger already."""

    since = 11
    no_inverse = NEVER_SHRINKS
    volume: str
    size_bytes: int
    vm: str | None = None
    """Which VM has it."""


@dataclass(frozen=True, kw_only=True)
class GrowDisk(HostAction):
    """A VM's own disk gets that size, and its guest learns of it where it runs. Refused where it is larger already."""

    since = 11
    no_inverse = NEVER_SHRINKS
    vm: str
    volume: str
    size_bytes: int
    keys: tuple[VolumeKey, ...] = ()
    """Of one that is encrypted."""


@dataclass(frozen=True, kw_only=True)
class CopyDataVolume(LongCopy):
    """A data volume that is no VM's, with what is on another at one moment, and with zeros behind it. A VM may run that
    has the other one. One that is there is left as it is."""

    volume: str
    of: str

    def inverse(self) -> HostAction:
        return DeleteDataVolume(volume=self.volume)


@dataclass(frozen=True, kw_only=True)
class ReplaceDataVolume(LongCopy):
    """A data volume that nothing has open becomes what is on another: whole, or it stays as it was."""

    no_inverse = "what was on it before is gone"
    volume: str
    of: str
    copy: str
    """A copy of the other one, which is taken for it where it is there, and is gone then. The same as the other one:
    what a backup held, which is in its place already if it is gone."""


@dataclass(frozen=True, kw_only=True)
class PlugDevices(HostAction):
    """A domain has the data volumes and network cards of the description: what it lacks is attached and what it has
    beyond is detached, and volumes have its limits, while it runs and in its definition; one that does not run is
    defined. A guest that does not let go of a device keeps it, in both."""

    since = 11
    no_inverse = "the description before is plugged in the same way"
    vm: str
    domain: DomainDescription
    keys: tuple[VolumeKey, ...] = ()
    """Of its encrypted volumes."""
