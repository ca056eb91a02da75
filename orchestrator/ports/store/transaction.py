# SPDX-License-Identifier: Apache-2.0
"""One transaction is one ``with store.begin() as tx``; what stands in it is one file per noun beside this one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from orchestrator.core.operation import Watched
from orchestrator.ports.store.audit import Audit
from orchestrator.ports.store.cards import Cards
from orchestrator.ports.store.claims import Claims
from orchestrator.ports.store.controllers import Controllers
from orchestrator.ports.store.driver_bundles import DriverBundles
from orchestrator.ports.store.driver_locks import DriverLocks
from orchestrator.ports.store.driver_upgrades import DriverUpgrades
from orchestrator.ports.store.findings import Findings
from orchestrator.ports.store.fleet import Fleet
from orchestrator.ports.store.guests import GuestRecords
from orchestrator.ports.store.hosts import Hosts
from orchestrator.ports.store.images import Images
from orchestrator.ports.store.looks import Looks
from orchestrator.ports.store.networks import Networks
from orchestrator.ports.store.offerings import Offerings
from orchestrator.ports.store.operations import Operations
from orchestrator.ports.store.policies import Policies
from orchestrator.ports.store.quotas import Quotas
from orchestrator.ports.store.request_keys import RequestKeys
from orchestrator.ports.store.secrets import Secrets
from orchestrator.ports.store.tenants import Tenants
from orchestrator.ports.store.time import Time
from orchestrator.ports.store.tokens import Tokens
from orchestrator.ports.store.vms import Vms
from orchestrator.ports.store.volumes import Volumes


class Transaction(Protocol):
    @property
    def controllers(self) -> Controllers: ...
    @property
    def fleet(self) -> Fleet: ...
    @property
    def hosts(self) -> Hosts: ...
    @property
    def cards(self) -> Cards: ...
    @property
    def looks(self) -> Looks: ...
    @property
    def vms(self) -> Vms: ...
    @property
    def guests(self) -> GuestRecords: ...
    @property
    def claims(self) -> Claims: ...
    @property
    def operations(self) -> Operations: ...
    @property
    def images(self) -> Images: ...
    @property
    def networks(self) -> Networks: ...
    @property
    def volumes(self) -> Volumes: ...
    @property
    def offerings(self) -> Offerings: ...
    @property
    def driver_bundles(self) -> DriverBundles: ...
    @property
    def driver_locks(self) -> DriverLocks: ...
    @property
    def driver_upgrades(self) -> DriverUpgrades: ...
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
    @property
    def time(self) -> Time: ...


class Store(Protocol):
    @property
    def site(self) -> str:
        """Id of this database, drawn when it was made."""

    def read(self) -> AbstractContextManager[Transaction]:
        """One consistent view, never waiting for writers."""

    def begin(self) -> AbstractContextManager[Transaction]:
        """Commits at the end of the block, rolls back when it raises. Writers come one after the other."""

    def appended(self) -> tuple[tuple[int, str], ...]:
        """Number and proof of the audit records that this process has committed since it was asked the last time."""

    def listen(self, operation_id: str, told: Callable[[Watched | None], None]) -> Callable[[], None]:
        """``told`` is called after each commit of this process that changes the operation, on the thread that commits;
        it may not wait. It is given the operation as it was committed, or None when that has to be read. What was
        committed of it lately it is told at once: who has just read it has missed nothing. Calling what is returned
        ends it. Commits of other processes tell nobody."""

    def claim(self) -> AbstractContextManager[Transaction]:
        """Like :meth:`begin`, side by side with others of its kind where the database can do that: constraints,
        counters and the rows of operations keep them apart, so nothing else may be decided by what was read here.

        :raises ClaimLost: at its end: meanwhile others have used up a quota of a tenant who would hold more by it"""
