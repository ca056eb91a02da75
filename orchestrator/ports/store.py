# SPDX-License-Identifier: Apache-2.0
"""The database: intent, claims, the journal of operations. One transaction is one ``with store.begin() as tx``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from orchestrator.core.audit import AuditRecord, Head
from orchestrator.core.claim import Claim, HostCapacity
from orchestrator.core.diff.finding import Finding, KeptFinding
from orchestrator.core.host import Host
from orchestrator.core.image import Image
from orchestrator.core.lease import TenantPolicy
from orchestrator.core.network import Network
from orchestrator.core.offering import Offering
from orchestrator.core.operation import Operation, StepRecord
from orchestrator.core.quota import Limit
from orchestrator.core.request_key import KeptRequest
from orchestrator.core.snapshot import HostSnapshot
from orchestrator.core.tenant import Member, Tenant, Token
from orchestrator.core.vm import Vm


class ClaimLost(Exception):
    """Somebody else took a slot, function or share of the host meanwhile. Plan again."""


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
class Due:
    """The one operation of its subject that may run now."""

    operation: str
    subject: str
    host: str


class Hosts(Protocol):
    def add(self, host: Host) -> None:
        """:raises Conflict: ``host.exists``, ``host.address_taken``"""

    def get(self, name: str) -> Host:
        """:raises NotFound: ``host.unknown``"""

    def list(self) -> tuple[Host, ...]: ...
    def update(self, host: Host) -> None:
        """Everything but the list of managed GPUs."""

    def set_gpus(self, name: str, gpus: Sequence[str]) -> None: ...
    def mark_enabled(self, name: str, gpu: str, *, by_us: bool) -> None:
        """Remember that it was us who switched a GPU's virtual functions on."""

    def enabled_by_us(self, name: str) -> tuple[str, ...]: ...
    def remove(self, name: str) -> None:
        """With its snapshot and GPUs. Gone already is fine."""

    def put_snapshot(self, name: str, snapshot: HostSnapshot, taken_at: float) -> None:
        """``taken_at``: when the look began; one that began before the stored one is ignored."""

    def snapshot(self, name: str) -> HostSnapshot | None: ...
    def snapshots(self) -> dict[str, HostSnapshot]:
        """Of every host that was observed."""


class Vms(Protocol):
    def add(self, vm: Vm) -> None:
        """:raises Conflict: ``vm.exists``"""

    def find(self, tenant: str, name: str) -> Vm | None: ...
    def find_id(self, vm_id: str) -> Vm | None: ...
    def list(self, *, tenant: str | None = None, host: str | None = None) -> tuple[Vm, ...]:
        """By tenant and name."""

    def lease_over(self, host: str, at: float) -> tuple[Vm, ...]:
        """Those on the host whose lease has ended and that still have their place, by tenant and name."""

    def update(self, vm: Vm) -> None: ...
    def remove(self, vm_id: str) -> None:
        """With its claims. Gone already is fine."""


class Claims(Protocol):
    def take(self, claim: Claim, capacity: HostCapacity) -> None:
        """Also for a VM that gave its place back and kept its disk.

        :raises ClaimLost: the transaction must be given up
        """

    def list(self) -> tuple[Claim, ...]:
        """Of all VMs that have a place, by VM."""

    def of_host(self, host: str) -> tuple[Claim, ...]:
        """Of VMs that have a place there."""

    def find(self, vm_id: str) -> Claim | None:
        """None: no such VM, or it has no place."""

    def free_place(self, vm_id: str) -> None:
        """All but the disk. Free already is fine."""

    def move_function(self, vm_id: str, function: str | None) -> None:
        """:raises ClaimLost: another VM has it"""


class Operations(Protocol):
    def add(self, operation: Operation, *, host: str, inputs: dict[str, object], waits_for: Sequence[str] = ()) -> None:
        """``waits_for``: ids of operations that have to end first, whichever way they do."""

    def get(self, operation_id: str) -> Job:
        """:raises NotFound: ``operation.unknown``"""

    def attempt_of(self, operation_id: str) -> int:
        """The number of its newest attempt. :raises NotFound: ``operation.unknown``"""

    def is_cancelled(self, operation_id: str) -> bool:
        """:raises NotFound: ``operation.unknown``"""

    def list(
        self,
        *,
        unfinished: bool = False,
        limit: int = 1000,
        tenants: tuple[str, ...] | None = None,
        before: str | None = None,
    ) -> tuple[Operation, ...]:
        """Newest first; ``tenants``: only theirs, None: all; ``before``: only those after the one with this id."""

    def counts(self) -> dict[tuple[str, str], int]:
        """How many are stored, by kind and state."""

    def of_subject(self, subject: str) -> tuple[Operation, ...]:
        """Oldest first."""

    def stuck_on(self, host: str) -> tuple[Operation, ...]:
        """Oldest first."""

    def due(self, subject: str | None = None) -> tuple[Due, ...]:
        """Of every subject, or of that one: the operation that has begun, else the oldest that waits.

        None of a subject whose operation waits for another one that has not ended."""

    def update(self, operation: Operation) -> None:
        """State, attempt, error, remainder, warnings, end; not the steps."""

    def forget(self, *, ended_before: float, most: int) -> int:
        """With their steps, unless stuck or still named by a VM or a finding; how many that were."""

    def put_step(self, operation_id: str, position: int, step: StepRecord) -> None: ...
    def request_cancel(self, operation_id: str) -> None: ...


class Images(Protocol):
    def add(self, image: Image) -> None:
        """:raises Conflict: ``image.exists``"""

    def get(self, name: str) -> Image:
        """:raises NotFound: ``image.unknown``"""

    def list(self) -> tuple[Image, ...]: ...
    def remove(self, name: str) -> None: ...


class Networks(Protocol):
    def add(self, network: Network) -> None:
        """:raises Conflict: ``network.exists``"""

    def get(self, name: str) -> Network:
        """:raises NotFound: ``network.unknown``"""

    def list(self) -> tuple[Network, ...]: ...


class Offerings(Protocol):
    """Those that the site added."""

    def list(self) -> tuple[Offering, ...]:
        """By name."""

    def put(self, offering: Offering) -> None:
        """Replaces the one of that name."""

    def remove(self, name: str) -> None:
        """Gone already is fine."""


class Secrets(Protocol):
    """Text that must not be readable in the database: kept encrypted, named by an id."""

    def put(self, secret_id: str, text: str) -> None: ...
    def get(self, secret_id: str) -> str:
        """:raises Bug: ``secret.missing``"""

    def remove(self, secret_id: str) -> None: ...


class Audit(Protocol):
    """Records are only ever added; sealing them comes later."""

    def append(self, *, at: float, actor: str, action: str, subject: str, outcome: str) -> None: ...
    def newest(self, *, limit: int, before: int | None) -> tuple[AuditRecord, ...]:
        """Newest first; ``before``: only older ones than this sequence number."""

    def all(self) -> Iterator[AuditRecord]:
        """Oldest first."""

    def after(self, sequence: int, *, limit: int) -> tuple[AuditRecord, ...]:
        """Oldest first."""

    def head(self) -> Head | None:
        """None: nothing was sealed yet."""

    def put_seal(self, head: Head) -> None:
        """The record is sealed and the head of the chain."""


class Findings(Protocol):
    def record(self, host: str, findings: Sequence[Finding], *, at: float, complete: bool) -> tuple[Finding, ...]:
        """What was found at ``at``; returns those that are new. What is not among them is cleared,
        unless the look was not ``complete``: then only what is about the host itself is."""

    def list(self, *, host: str | None = None, cleared: bool = False) -> tuple[KeptFinding, ...]:
        """Those that stand, or with ``cleared`` also those that stood; by host, code and subject."""

    def set_operation(self, finding: Finding, operation_id: str) -> None:
        """The operation that repairs it."""


class Tenants(Protocol):
    def add(self, tenant: Tenant) -> None: ...
    def find(self, name: str) -> Tenant | None: ...
    def list(self) -> tuple[Tenant, ...]:
        """By name."""

    def remove(self, name: str) -> None:
        """With its members, tokens, quota and policy. Gone already is fine."""

    def put_member(self, member: Member) -> None:
        """Replaces the role that the subject had there."""

    def remove_member(self, tenant: str, subject: str) -> None: ...
    def members(self, *, tenant: str | None = None, subject: str | None = None) -> tuple[Member, ...]:
        """By tenant and subject; ``*`` as tenant: those whose roles hold everywhere."""


class Tokens(Protocol):
    def add(self, token: Token) -> None: ...
    def find(self, token_id: str) -> Token | None: ...
    def list(self, tenant: str) -> tuple[Token, ...]:
        """By age."""

    def revoke(self, token_id: str, at: float) -> None: ...


class Quotas(Protocol):
    def list(self) -> tuple[Limit, ...]:
        """Of all tenants and of the pool (``*``), by tenant and resource."""

    def put(self, limit: Limit) -> None:
        """Replaces the one there was."""

    def remove(self, tenant: str, resource: str) -> None: ...


class Policies(Protocol):
    def get(self, tenant: str) -> TenantPolicy:
        """The one that says nothing, where none was set."""

    def put(self, tenant: str, policy: TenantPolicy) -> None:
        """Replaces the one there was."""


class RequestKeys(Protocol):
    """What was asked under idempotency keys."""

    def find(self, actor: str, key: str) -> KeptRequest | None: ...
    def put(self, kept: KeptRequest) -> None:
        """Replaces the one there was."""

    def remove(self, actor: str, key: str) -> None: ...
    def forget(self, *, before: float) -> None:
        """All that were begun earlier."""


class Controllers(Protocol):
    """Who else executes operations of this database."""

    def beat(self, name: str) -> dict[str, int]:
        """Say that ``name`` lives; how often every controller has said so yet."""

    def remove(self, name: str) -> None:
        """It has stopped in good order, or is gone. Gone already is fine."""


class Transaction(Protocol):
    @property
    def controllers(self) -> Controllers: ...
    @property
    def hosts(self) -> Hosts: ...
    @property
    def vms(self) -> Vms: ...
    @property
    def claims(self) -> Claims: ...
    @property
    def operations(self) -> Operations: ...
    @property
    def images(self) -> Images: ...
    @property
    def networks(self) -> Networks: ...
    @property
    def offerings(self) -> Offerings: ...
    @property
    def secrets(self) -> Secrets: ...
    @property
    def audit(self) -> Audit: ...
    @property
    def findings(self) -> Findings: ...
    @property
    def tenants(self) -> Tenants: ...
    @property
    def tokens(self) -> Tokens: ...
    @property
    def quotas(self) -> Quotas: ...
    @property
    def policies(self) -> Policies: ...
    @property
    def request_keys(self) -> RequestKeys: ...


class Store(Protocol):
    @property
    def site(self) -> str:
        """Id of this database, drawn when it was made."""

    def read(self) -> AbstractContextManager[Transaction]:
        """One consistent view, never waiting for writers."""

    def begin(self) -> AbstractContextManager[Transaction]:
        """Commits at the end of the block, rolls back when it raises. Writers come one after the other."""
