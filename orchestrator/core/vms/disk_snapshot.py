# SPDX-License-Identifier: Apache-2.0
"""A snapshot of a VM's disk: what was on it at one moment, in a whole file of its own beside the disk. It is part of
the VM's row, and goes with the VM."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from orchestrator.core.errors import NotFound
from orchestrator.core.names import near

TakenOf = Literal["stopped", "running"]
"""What the VM was. Of one that ran it is the disk as a power cut in that moment would have left it, unless its guest's
file systems were frozen then."""
QUIESCED: Final = "yes"
NO_GUEST_AGENT: Final = "no guest agent"
_REFUSED: Final = "guest agent refused: "
MAX_QUIESCED: Final = 160
"""Characters of what is said of it."""
SNAPSHOT_FILE: Final = ".snapshot"
"""Ends the names of snapshots' files."""
MAX_OF_VM: Final = 32
"""Snapshots of one VM."""


@dataclass(frozen=True, kw_only=True)
class DiskSnapshot:
    """As the database holds it."""

    id: str
    """Stays the same for ever."""
    name: str
    """What it is called, among those of its VM."""
    size_bytes: int
    """Of the disk; the file has at most so much of its host's disk, and that is claimed."""
    created_at: float
    """When it was asked for: seconds since the epoch, UTC."""
    taken_of: TakenOf | None = None
    """None: its file is being made."""
    quiesced: str | None = None
    """Whether the guest's file systems were frozen at that moment: ``yes``, ``no guest agent``, or ``guest agent
    refused: `` and why. None: the VM was stopped, or its host's agent is too old to say."""
    volumes: tuple[str, ...] = ()
    """Data volumes that were copied at the same moment: ``name.id``, the volume's name and its snapshot's id."""


@dataclass(frozen=True, kw_only=True)
class SnapshotSource:
    """A snapshot that a new VM's disk is a copy of."""

    host: str
    """Where it lies, and the new VM as well."""
    vm: str
    """Id of the VM that it is of."""
    disk: str
    """File of that VM's disk, which says what the copy lies on."""
    snapshot: str
    """Its file."""
    size_bytes: int


def quiesce_refused(why: str) -> str:
    """``why``: what the guest, or libvirt, said."""
    printable = "".join(letter if " " <= letter <= "~" else "?" for letter in why.strip())
    return f"{_REFUSED}{printable}"[:MAX_QUIESCED]


def quiesced_of(answer: str) -> str | None:
    """What a host's agent says of it, as far as it is believed. None: nothing."""
    if answer in {QUIESCED, NO_GUEST_AGENT}:
        return answer
    return quiesce_refused(answer.removeprefix(_REFUSED)) if answer else None


def snapshot_file(vm_id: str, snapshot_id: str) -> str:
    """Name of its file, in the agent's directory of VMs' disks."""
    return f"{vm_id}.{snapshot_id}{SNAPSHOT_FILE}"


def find_snapshot(snapshots: Iterable[DiskSnapshot], name: str, vm_name: str) -> DiskSnapshot:
    """Of those of the VM. :raises NotFound: ``snapshot.unknown``"""
    by_name = {snapshot.name: snapshot for snapshot in snapshots}
    if name not in by_name:
        hint = near(name, by_name, f"vgpuctl vm snapshot list {vm_name}")
        raise NotFound("snapshot.unknown", f"no snapshot of VM {vm_name} is called {name[:63]!a}", hint=hint)
    return by_name[name]
