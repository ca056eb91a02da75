# SPDX-License-Identifier: Apache-2.0
"""Ends leases: a VM whose lease is over is stopped and gives its place back, by an ordinary operation.

No wall clock ends one, but the time that has surely passed (services/site_time.py)."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.contained import Contained
from orchestrator.core.diff import Finding, lease_finding, lease_in_doubt
from orchestrator.core.vms.lease import show_moment
from orchestrator.ports.clock import Clock, Ids
from orchestrator.ports.engine import Engine
from orchestrator.services.site_time import SiteTime
from orchestrator.services.vms.deallocating import begin_deallocation, idle
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction

ACTOR = "lease"


@dataclass(frozen=True, kw_only=True)
class LeaseKeeper:
    """Safe to call from many threads."""

    store: Store
    engine: Engine
    clock: Clock
    ids: Ids
    time: SiteTime

    def findings(self, tx: Transaction, host: str, now: float) -> list[Finding]:
        """What is to be said of the leases on the host."""
        vms = [vm for vm in tx.vms.list(host=host) if vm.lease_end is not None]
        policies = {tenant: tx.policies.get(tenant) for tenant in {vm.spec.tenant for vm in vms}}
        findings = [finding for vm in vms for finding in lease_finding(vm, policies[vm.spec.tenant], now)]
        if tx.hosts.get(host).restored is not None:  # a clock that is believed later is believed here already
            over = tx.vms.lease_over(host, max(now, self.time.now()))
            findings += [lease_in_doubt(vm, now) for vm in over if vm.state == "running"]
        return findings

    def end_leases(self, host: str) -> tuple[str, ...]:
        """Ids of the operations that were begun. On a host that does not answer nothing is: its VMs are left alone."""
        now = self.time.now()
        with self.store.read() as tx:
            over = tx.vms.lease_over(host, now)
        begun, broken = list[str](), list[Exception]()
        for vm in over:  # each in a transaction of its own: one that cannot be ended keeps no other
            with Contained(broken.append):
                with self.store.begin() as tx:
                    operation = self._begin(tx, vm.id, now)
                if operation is not None:
                    self.engine.submit(operation)
                    begun.append(operation)
        if broken:
            raise broken[0]
        return tuple(begun)

    def _begin(self, tx: Transaction, vm_id: str, now: float) -> str | None:
        """Decided again: since the first look its lease may have been extended, or an operation begun."""
        vm = tx.vms.find_id(vm_id)
        if vm is None or vm.id not in {one.id for one in tx.vms.lease_over(vm.host, now)}:
            return None
        host = tx.hosts.get(vm.host)
        if host.state != "ready" or host.restored is not None:  # it may have been extended after the backup
            return None
        if vm.state not in {"running", "stopped"} or not idle(tx, vm):
            return None
        operation = begin_deallocation(tx, vm, "lease_over", clock=self.clock, ids=self.ids)
        subject, ended = vm.full_name, show_moment(vm.lease_end or now)
        at, outcome = self.clock.now(), f"it ended {ended}"
        tx.audit.append(at=at, actor=ACTOR, action="end_lease", subject=subject, outcome=outcome)
        return operation.id
