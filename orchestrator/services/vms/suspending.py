# SPDX-License-Identifier: Apache-2.0
"""Suspending VMs to their host's disk, and resuming them. What keeps one from it, core/moves/ says: it is a move with
the state of its devices onto its own host, as that is by then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.core.attachments.host_facts import HostFacts
from orchestrator.core.errors import Conflict, NoCapacity, Reason
from orchestrator.core.hosts.volume_key import is_encrypted
from orchestrator.core.moves.verdicts import MoveLimit
from orchestrator.core.units import MIB, show_size
from orchestrator.core.vms.vm import Vm, VmState
from orchestrator.core.vms.volume import short_of
from orchestrator.ports.engine import Engine
from orchestrator.services.begin import held_by, new_operation, record, undo_inputs
from orchestrator.services.fleet.view import capacity_of
from orchestrator.services.messages import Started
from orchestrator.services.vm_checks import check_host, check_idle, check_lease, check_state, known_vm
from orchestrator.services.vms.moves import MoveService
from orchestrator.services.vms.planning import Planner
from orchestrator.store.database import Store
from orchestrator.store.records import ClaimLost
from orchestrator.store.transaction import Transaction

_BESIDE: Final = 64 * MIB
"""For what QEMU writes beside memory and vGPUs."""


@dataclass(frozen=True, kw_only=True)
class VmSuspension:
    """A suspended VM is a stopped one whose memory is kept: it holds its claims, and room for the file."""

    store: Store
    engine: Engine
    planner: Planner
    moves: MoveService

    def suspend(self, tenant: str, name: str) -> Started:
        """:raises NotFound: ``vm.unknown``; :raises Conflict: ``vm.busy``, ``vm.not_suspendable``
        :raises NoCapacity: ``host.disk``: its host has no room for the file"""
        with self.store.read() as tx:
            vm = known_vm(tx, tenant, name)
            _check_not_encrypted(vm)
            if vm.state == "stopped" and vm.suspended_bytes is not None:
                return Started(operation=None, name=name, existing=True)
            check_state(vm, "running")
        _check_limits(vm, self.moves.onto_itself(tenant, name), "vm.not_suspendable", "cannot be suspended")
        with self.planner.index.current() as fleet, self.store.begin() as tx:
            vm, viewed = known_vm(tx, tenant, name), fleet.host(vm.host)
            check_state(vm, "running")
            check_idle(tx, vm)
            if viewed is None:
                raise _no_disk(vm, 0)
            size, overcommit = _max_bytes(vm, viewed.facts), self.planner.index.overcommit.of(viewed.seen.host)
            try:
                tx.suspended.begin(vm.id, viewed.facts, size, capacity_of(viewed.facts, overcommit).disk_bytes)
            except ClaimLost as error:
                raise _no_disk(vm, size) from error
            started = self._begin(tx, "suspend_vm", replace(vm, suspended_bytes=size), "stopping")
        return self._submitted(started)

    def resume(self, tenant: str, name: str) -> Started:
        """:raises NotFound: ``vm.unknown``
        :raises Conflict: ``vm.busy``, ``vm.not_suspended``, ``vm.not_resumable``, ``lease.over``,
            ``host.provisioning``"""
        with self.store.read() as tx:
            vm = _suspended(known_vm(tx, tenant, name))
        hint = f"'vgpuctl vm discard-suspended {_named(vm)}' gives its memory up; it starts from its disk then"
        limits = self.moves.onto_itself(tenant, name)
        _check_limits(vm, limits, "vm.not_resumable", "cannot resume: its memory is kept, and", hint)
        with self.store.begin() as tx:
            vm = _suspended(known_vm(tx, tenant, name))
            check_idle(tx, vm)
            check_host(tx, vm)
            check_lease(vm, self.planner.clock.now())
            started = self._begin(tx, "resume_vm", vm, "starting")
        return self._submitted(started)

    def discard(self, tenant: str, name: str) -> Started:
        """Its memory goes; it boots from its disk, as after a power cut, when it is started.

        :raises NotFound: ``vm.unknown``; :raises Conflict: ``vm.busy``, ``vm.not_suspended``"""
        with self.store.begin() as tx:
            vm = _suspended(known_vm(tx, tenant, name))
            check_idle(tx, vm)
            started = self._begin(tx, "discard_suspended_vm", vm, "stopping")
        return self._submitted(started)

    def _begin(self, tx: Transaction, kind: str, vm: Vm, state: VmState) -> Started:
        operation = new_operation(kind, vm, clock=self.planner.clock, ids=self.planner.ids)
        tx.vms.update(replace(held_by(operation, vm), state=state))
        record(tx, operation, host=vm.host, inputs={"vm": vm.spec.name, **undo_inputs(vm)})
        return Started(operation=operation.id, name=vm.spec.name)

    def _submitted(self, started: Started) -> Started:
        self.engine.submit(str(started.operation))
        return started


def _max_bytes(vm: Vm, facts: HostFacts) -> int:
    """What the file may come to: all of its memory and of its vGPUs'."""
    sizes = {(gpu.address, kind.name): kind.framebuffer_mib for gpu in facts.gpus for kind in gpu.types}
    framebuffers = sum(sizes.get((device.gpu, device.type_name), 0) for device in vm.devices)
    return (vm.spec.memory_mib + framebuffers) * MIB + _BESIDE


def _check_not_encrypted(vm: Vm) -> None:
    """:raises Conflict: ``vm.not_suspendable``"""
    encrypted = [short_of(volume) for volume in vm.spec.volumes if is_encrypted(volume)]
    if encrypted:
        raise Conflict(
            "vm.not_suspendable",
            f"VM {vm.spec.name} cannot be suspended: its memory on a disk holds what its encrypted volumes hold",
            hint=f"'vgpuctl volume detach {encrypted[0]} {_named(vm)}', or 'vgpuctl stop-vm {_named(vm)}'",
        )


def _suspended(vm: Vm) -> Vm:
    """:raises Conflict: ``vm.busy``, ``vm.not_suspended``"""
    if vm.state in {"running", "stopped"} and (vm.state == "running" or vm.suspended_bytes is None):
        words = f"VM {vm.spec.name} is not suspended: it is {vm.state}"
        hint = "nothing is to be done: it is in use" if vm.state == "running" else f"'vgpuctl start-vm {_named(vm)}'"
        raise Conflict("vm.not_suspended", words, hint=hint)
    check_state(vm, "stopped", suspended=True)
    return vm


def _named(vm: Vm) -> str:
    return f"{vm.spec.name} --tenant {vm.spec.tenant}"


def _check_limits(vm: Vm, limits: Sequence[MoveLimit], code: str, words: str, hint: str | None = None) -> None:
    if limits:
        hint = hint or limits[0].cure or f"'vgpuctl stop-vm {_named(vm)}' stops it"
        reasons = tuple(Reason(code=limit.code, message=limit.message, subjects=()) for limit in limits)
        raise Conflict(code, f"VM {vm.spec.name} {words}: {limits[0].message}", hint=hint, reasons=reasons)


def _no_disk(vm: Vm, size_bytes: int) -> NoCapacity:
    words = f"the host of VM {vm.spec.name} has no {show_size(size_bytes)} of disk for its memory"
    return NoCapacity("host.disk", words, hint=f"free disk there, or 'vgpuctl stop-vm {_named(vm)}'")
