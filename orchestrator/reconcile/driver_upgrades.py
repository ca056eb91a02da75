# SPDX-License-Identifier: Apache-2.0
"""Takes a rolling upgrade on: reads how far each host is, begins the operations that are due, writes it down.

All that is known is in the database, so any controller takes it on at any time: what was begun is found by its id, in
the same transaction that said so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator.core.driver_upgrade import (
    UNDER_WAY,
    DriverUpgrade,
    HostPhase,
    HostUpgrade,
    begin_next,
    settled,
)
from orchestrator.core.errors import Conflict, NotFound
from orchestrator.core.host import Host
from orchestrator.core.operation import FINISHED, Operation
from orchestrator.core.vm import Vm, VmState
from orchestrator.operations.steps.driver import PROVISION
from orchestrator.ports.clock import Clock, Ids
from orchestrator.ports.engine import Engine
from orchestrator.ports.store.transaction import Store, Transaction
from orchestrator.services.begin import before, held_by, new_operation, record
from orchestrator.services.deallocating import idle
from orchestrator.services.driver_upgrades import swap_of
from orchestrator.services.host_provisioning import begin_swap, check_free, needs_base
from orchestrator.services.upgrade_waits import AT_REST, waits_of


@dataclass(frozen=True, kw_only=True)
class DriverUpgradeKeeper:
    """Safe to call from many threads and controllers; nothing is done without an upgrade that is not over."""

    store: Store
    engine: Engine
    clock: Clock
    ids: Ids

    def round(self) -> None:
        """As far as it goes now."""
        with self.store.read() as tx:
            if not tx.driver_upgrades.is_active():
                return
        with self.store.begin() as tx:
            upgrade = tx.driver_upgrades.newest()
            if upgrade is None:
                return
            work = _Work(tx, self.clock, self.ids, upgrade)
            after = work.advance()
            if after != upgrade:
                tx.driver_upgrades.put(after)
        for operation in work.begun:
            self.engine.submit(operation)


class _Work:
    """One round, in one transaction."""

    def __init__(self, tx: Transaction, clock: Clock, ids: Ids, upgrade: DriverUpgrade) -> None:
        self._tx, self._clock, self._ids, self._upgrade = tx, clock, ids, upgrade
        self.begun: list[str] = []

    def advance(self) -> DriverUpgrade:
        """The upgrade as it then is."""
        now = self._clock.now()
        upgrade = settled(self._all_on(self._upgrade), now)
        if upgrade.state == "running" and upgrade.is_open(now):
            at_rest = {one.host for one in upgrade.hosts if one.phase not in UNDER_WAY}
            away = {host.name for host in self._tx.hosts.list() if host.state != "ready"} & at_rest
            # Whose turn it is depends on the tenants only while there is one who may begin.
            occupied = waits_of(self._tx, upgrade, now) if begin_next(upgrade, away) else ()
            for name in begin_next(upgrade, away, occupied):
                upgrade = upgrade.put(self._on(self._begin(upgrade.host(name))))
        return settled(upgrade, now)

    def _all_on(self, upgrade: DriverUpgrade) -> DriverUpgrade:
        return replace(upgrade, hosts=tuple(self._on(one) for one in upgrade.hosts))

    def _on(self, one: HostUpgrade) -> HostUpgrade:
        """Phase after phase, until something has to be waited for."""
        turns = {"emptying": self._emptied, "swapping": self._swapped, "refilling": self._refilled}
        while one.phase in turns:
            after = turns[one.phase](one)
            if after == one:
                return one
            one = after
        return one

    def _begin(self, one: HostUpgrade) -> HostUpgrade:
        host = self._tx.hosts.get(one.host)
        if not host.cordoned or host.cordoned_for is not None:  # what a person said stays
            why = f"the driver upgrade to {self._upgrade.version}"
            self._tx.hosts.update(replace(host, cordoned=True, cordoned_for=why))
        return replace(one, phase="emptying", began_at=self._clock.now())

    def _emptied(self, one: HostUpgrade) -> HostUpgrade:
        """VMs are stopped, or waited for; then the driver's turn comes."""
        host = self._host(one)
        if host is None:
            return self._failed(one, "the host is gone")
        stopped = [self._tx.operations.get(name).operation for name in one.operations]
        if any(operation.state in FINISHED - {"done"} for operation in stopped):
            return self._refill(one, "kept", "a VM could not be stopped")
        there = self._tx.vms.list(host=one.host)
        if ended := [vm for vm in there if _left_its_devices(vm) and idle(self._tx, vm)]:
            return replace(one, operations=(*one.operations, *(self._vm_operation(vm, "stop_vm") for vm in ended)))
        vms = [vm for vm in there if vm.state not in AT_REST]
        if any(vm.state == "stuck" for vm in vms):
            return self._refill(one, "kept", f"VM {vms[0].full_name} is stuck")
        if vms:
            return self._leave(one, vms)
        if any(operation.state not in FINISHED for operation in stopped):
            return one
        if not one.vms and not self._upgrade.is_open(self._clock.now()):
            return one  # nobody waits for it; a host whose VMs were stopped goes on
        return self._swap(one, host)

    def _leave(self, one: HostUpgrade, vms: Sequence[Vm]) -> HostUpgrade:
        ready = [vm for vm in vms if vm.state == "running" and vm.id not in one.vms and idle(self._tx, vm)]
        if self._upgrade.policy == "wait" or not ready:
            return one
        begun = [self._vm_operation(vm, "stop_vm") for vm in ready]
        return replace(one, vms=(*one.vms, *(vm.id for vm in ready)), operations=(*one.operations, *begun))

    def _swap(self, one: HostUpgrade, host: Host) -> HostUpgrade:
        try:
            check_free(self._tx, host)
        except Conflict:
            return one  # something else is done there, or it does not answer: it is waited for
        try:
            swap = swap_of(self._tx, self._tx.driver_bundles.list(), host, self._upgrade.version)
        except (Conflict, NotFound) as error:
            return self._refill(one, "kept", error.message)
        if self._upgrade.reboot == "if-needed":
            swap = replace(swap, reboot=True, base=needs_base(self._tx, host))
        operation = begin_swap(self._tx, host, "upgrade_driver", swap, clock=self._clock, ids=self._ids)
        self.begun.append(operation.id)
        return replace(one, phase="swapping", swap=operation.id, operations=())

    def _swapped(self, one: HostUpgrade) -> HostUpgrade:
        operation = self._tx.operations.get(one.swap or "").operation
        if operation.state not in FINISHED:
            return one
        if operation.state == "done":
            return self._refill(one, "done", "")
        why = str((operation.error or {}).get("message", "it failed"))
        if operation.state == "stuck":
            return self._failed(one, why)
        return self._refill(one, "rolled_back" if _touched(operation) else "kept", why)

    def _refill(self, one: HostUpgrade, outcome: HostPhase, why: str) -> HostUpgrade:
        """The VMs that ran there start again, each by an operation of its own."""
        vms = [vm for name in one.vms if (vm := self._tx.vms.find_id(name)) is not None]
        ready = [vm for vm in vms if vm.state == "stopped" and vm.host == one.host and idle(self._tx, vm)]
        begun = [self._vm_operation(vm, "start_vm") for vm in ready if vm.deallocated is None]
        return replace(one, phase="refilling", outcome=outcome, why=why, operations=tuple(begun))

    def _refilled(self, one: HostUpgrade) -> HostUpgrade:
        started = [self._tx.operations.get(name).operation for name in one.operations]
        if any(operation.state not in FINISHED for operation in started):
            return one
        lost = [operation.subject_name for operation in started if operation.state != "done"]
        if lost:
            return self._failed(one, f"VM {', '.join(lost)} did not start again" + (f"; {one.why}" if one.why else ""))
        outcome = one.outcome or "failed"
        host = self._host(one)
        if host is not None and outcome != "rolled_back" and host.cordoned_for is not None:
            self._tx.hosts.update(replace(host, cordoned=False, cordoned_for=None))
        return replace(one, phase=outcome, outcome=None, operations=(), ended_at=self._clock.now())

    def _failed(self, one: HostUpgrade, why: str) -> HostUpgrade:
        return replace(one, phase="failed", outcome=None, why=why, operations=(), ended_at=self._clock.now())

    def _host(self, one: HostUpgrade) -> Host | None:
        try:
            return self._tx.hosts.get(one.host)
        except NotFound:
            return None

    def _vm_operation(self, vm: Vm, kind: str) -> str:
        operation = new_operation(kind, vm, clock=self._clock, ids=self._ids)
        state: VmState = "stopping" if kind == "stop_vm" else "starting"
        self._tx.vms.update(replace(held_by(operation, vm), state=state))
        record(self._tx, operation, host=vm.host, inputs={"vm": vm.spec.name, **before(vm)})
        self.begun.append(operation.id)
        return operation.id


def _left_its_devices(vm: Vm) -> bool:
    """Its guest ended by itself: nobody runs it, and its vGPU is still in the driver's way. It is not started again."""
    return vm.state == "stopped" and vm.wanted == "running" and vm.deallocated is None


def _touched(operation: Operation) -> bool:
    """Whether the driver was ever touched: else the host is as it was."""
    return any(step.name == PROVISION.name and step.state != "pending" for step in operation.steps)
