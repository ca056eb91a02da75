# SPDX-License-Identifier: Apache-2.0
"""What the store takes and gives beside values of core."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, TypedDict

from orchestrator.core.attachments.host_facts import HostFacts
from orchestrator.core.hosts.host import Host
from orchestrator.core.operation import Operation, OperationState
from orchestrator.core.tenancy.access import Tenants
from orchestrator.core.vms.claim import Claim
from orchestrator.core.vms.vm import Vm, VmState

_COPIES: Final = frozenset({
    "create_snapshot", "restore_snapshot", "create_image", "back_up_vm", "restore_backup", "verify_backup",
    "delete_backup", "import_backups",
    "create_volume_snapshot", "restore_volume_snapshot", "copy_volume", "fetch_volume",
})  # fmt: skip


class AuditFilter(TypedDict, total=False):
    """Of which records; what is not said matters not."""

    actor: str | None
    """Only by this one, of a token ``token:3f2a`` or ``ci`` alone will do for ``token:3f2a (ci)``."""
    subject: str | None
    """Only about this."""
    since: float | None
    """Only from then on, seconds since the epoch."""
    until: float | None
    """Only before then."""
    refused: bool
    """Only refusals."""


class ClaimLost(Exception):
    """Somebody else took a slot, function or share of the host meanwhile. Plan again."""


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    """A tenant with a place on a GPU."""

    tenant: str
    gpu: str
    cut: str
    scheduled: bool
    """Whether its VM there asks for a setting of the GPU."""


@dataclass(frozen=True, kw_only=True)
class HostRecord:
    """All of a host that placement sees."""

    host: Host
    facts: HostFacts | None
    """None: it was never observed."""
    claims: tuple[Claim, ...]
    vms: tuple[Vm, ...]
    """All on it, with or without a place."""
    volume_bytes: int = 0
    """What the data volumes on it may take together."""
    sanitising: frozenset[str] = frozenset()
    """PCI addresses of GPUs with a piece of which it is not known that what a VM left is gone."""


@dataclass(frozen=True, kw_only=True)
class FleetChanges:
    """What happened to hosts since somebody read them."""

    position: int
    """Where to go on from."""
    stamps: dict[str, int]
    """Host → a number that differs after each change. Those that are gone are named too, and some may be named
    again."""


@dataclass(frozen=True, kw_only=True)
class LastObservation:
    """How a host was last seen."""

    host: Host
    """Enough to reach it: its list of managed GPUs is left out, and when it was last seen stands beside it."""
    last_seen_at: float | None
    digest: str | None
    """Of the snapshot that is stored, whole, and compared with what is wanted; None: there is none like that."""
    storage_free_bytes: int


@dataclass(frozen=True, kw_only=True)
class UnchangedObservation:
    """A look, begun ``at`` that moment, that found what is stored."""

    host: str
    at: float


@dataclass(frozen=True, kw_only=True)
class Job:
    """An operation with what only its execution needs."""

    operation: Operation
    inputs: dict[str, object]
    host: str
    """Name of the host it works on."""
    cancelled: bool
    revision: int
    """Grows with every change."""
    waits_for: tuple[str, ...] = ()
    """Ids of the operations that must have ended before it runs."""


@dataclass(frozen=True, kw_only=True)
class DueOperation:
    """The one operation of its subject that may run now."""

    operation: str
    subject: str
    host: str
    attempt: int
    """How many have begun."""
    kind: str = ""
    tenant: str | None = None
    copies_disk: bool = False
    """Its VM's new disk is a copy of a snapshot."""

    @property
    def in_guest(self) -> bool:
        """It waits for a guest, which its tenant may let hang."""
        return self.kind == "provision_vm"

    @property
    def copies(self) -> bool:
        """It copies or reads as much as a VM's whole disk, which takes hours."""
        return self.kind in _COPIES or self.copies_disk

    @property
    def line(self) -> str:
        """Whose places it takes: the host's, those of its long copies, or those of the tenant's runs in guests."""
        if self.in_guest:
            return f"guests of {self.tenant}"
        return f"copies on {self.host}" if self.copies else self.host


@dataclass(frozen=True, kw_only=True)
class BootingGuest:
    """An operation that has found its VM's guest not booted yet, in the step that has not ended since."""

    operation: str
    kind: str
    attempt: int
    vm: str
    host: str
    waits: bool
    """False: it goes on, and may wait again."""


class OperationFilter(TypedDict, total=False):
    """Which operations; all that is given must hold."""

    unfinished: bool
    states: Collection[OperationState] | None
    kind: str | None
    tenants: tuple[str, ...] | None
    """Only theirs."""
    subject: str | None
    """Only those about what has this id or had this name (``tenant/name`` of a VM)."""
    beginning: str | None
    """Of their id."""


class VmFilter(TypedDict, total=False):
    """Which VMs; all that is given must hold."""

    tenants: Tenants
    """Only theirs."""
    state: VmState | None
    host: str | None
    profile: str | None
    """Whether in capital letters or not."""
