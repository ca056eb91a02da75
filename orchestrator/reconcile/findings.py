# SPDX-License-Identifier: Apache-2.0
"""Findings as their readers see them."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.diff import Severity, StoredFinding
from orchestrator.core.diff.health import GPU_FAULT
from orchestrator.core.diff.orphans import removal_of, undefinition_of
from orchestrator.core.errors import NotFound
from orchestrator.reconcile.reconciler import Reconciler
from orchestrator.reconcile.repairs import Repairer
from orchestrator.services.acting import actor
from orchestrator.store.database import Store


@dataclass(frozen=True, kw_only=True)
class FindingService:
    """What differs, and repairs on request."""

    store: Store
    reconciler: Reconciler
    repairer: Repairer

    def list(self, *, host: str | None, cleared: bool = False) -> tuple[StoredFinding, ...]:
        """:raises NotFound: ``host.unknown``"""
        with self.store.read() as tx:
            if host is not None:
                tx.hosts.get(host)
            return tx.findings.list(host=host, cleared=cleared)

    def observe(self, host: str | None) -> tuple[StoredFinding, ...]:
        """Look at the hosts now, then list.

        :raises NotFound: ``host.unknown``"""
        self.list(host=host)
        if host is None:
            self.reconciler.round(asked=True)
        else:
            self.reconciler.observe(host)
        return self.list(host=host)

    def repair(self, *, host: str | None) -> tuple[str, ...]:
        """Begin every repair there is, also those that are not done without being asked; operation ids. Hosts that this
        server has not compared lately are looked at first.

        :raises NotFound: ``host.unknown``"""
        standing = self.list(host=host)
        with self.store.begin() as tx:
            at, subject = self.repairer.clock.now(), f"host {host}" if host else "all hosts"
            tx.audit.append(at=at, actor=actor(), action="repair", subject=subject, outcome="accepted")
        for name in {stored.finding.host for stored in standing}:
            if not self.repairer.pacing.is_fresh(name):
                self.reconciler.observe(name)
        return self.repairer.repair(host=host, asked=True)

    def remove(self, *, host: str, owner: str) -> tuple[str, ...]:
        """After a restore: everything on the host of a VM or data volume that the database does not know. Somebody has
        said that nobody needs it; ids of the operations that were begun.

        :raises NotFound: ``host.unknown``, ``finding.unknown``"""
        self.reconciler.observe(host)
        unknown = [stored.finding for stored in self.list(host=host) if stored.finding.whose == "unknown"]
        with self.store.read() as tx:
            snapshot = tx.hosts.snapshot(host)
        actions = () if snapshot is None else removal_of(snapshot, owner)
        if (
            snapshot is None
            or not actions
            or not any(owner in {stored.vm, *stored.subject.split(".")} for stored in unknown)
        ):
            raise NotFound(
                "finding.unknown",
                f"host {host} has nothing of {owner[:63]!a} that the database does not know",
                hint="'vgpuctl doctor' looks again and lists what there is",
            )
        return self.repairer.remove(host, owner, (*actions, *undefinition_of(snapshot, owner)))

    def gpu_faults(self) -> dict[str, str]:
        """VM's id → what is wrong with its GPU and what that means, in words that name no host."""
        with self.store.read() as tx:
            faults = [fault.finding for fault in tx.findings.list(code=GPU_FAULT)]
        return {fault.vm: f"{fault.observed}; {fault.reason}" for fault in faults if fault.vm is not None}

    def counts(self) -> dict[str, int]:
        """Of those that stand, by code."""
        with self.store.read() as tx:
            return tx.findings.counts()

    def by_severity(self) -> dict[Severity, int]:
        """How many stand."""
        with self.store.read() as tx:
            return tx.findings.by_severity()
