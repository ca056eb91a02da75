# SPDX-License-Identifier: Apache-2.0
"""What must be true once faults have stopped and everything had time: database, host and ledger say the same."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.core.diff import StoredFinding
from orchestrator.core.operation import FINISHED, Operation
from orchestrator.core.vms.vm import Vm
from tests.simulated.invariants import HostView, objects_on

_OF_LEASES = frozenset({"vm.lease_ends_soon", "vm.lease_over", "vm.disk_kept_too_long"})
_OF_CORDONS = frozenset({"host.cordoned", "host.maintenance_failed"})
_OF_THE_POWERED_OFF = frozenset({"vm.not_running"})
"""What is told of VMs that somebody powered off, and repaired only when it is asked for."""

_OF_TAKEN_FUNCTIONS = frozenset({"vm.device_differs", "vm.definition_changed"})
"""What is told where somebody else took the function of a stopped VM: it is theirs now; or a start that failed later
gave the VM another one, and the definition names the old one until the next start writes it again."""


def i4_every_operation_has_ended(operations: tuple[Operation, ...]) -> Iterator[str]:
    """As done or undone; a stuck one was tried again by its operator until it was."""
    for operation in operations:
        if operation.state not in FINISHED or operation.state == "stuck":
            yield f"operation {operation.id} ({operation.kind}) is {operation.state}: {operation.error}"


def i5_a_request_made_twice_made_one_vm(views: list[HostView]) -> Iterator[str]:
    names: dict[str, str] = {}
    for view in views:
        for uuid, domain in view.machine.domains.items():
            if names.setdefault(domain.name, uuid) != uuid:
                yield f"{view.host}: there are two domains for {domain.name}"


def nothing_is_found_where_nothing_differs(
    standing: tuple[StoredFinding, ...], disturbed: set[str], with_foreign: set[str]
) -> Iterator[str]:
    """``disturbed``: names of hosts that somebody rebooted or where somebody powered domains off; ``with_foreign``:
    where somebody else made vGPUs, maybe on the function of a VM that was stopped."""
    for one in (kept.finding for kept in standing if kept.finding.whose != "foreign"):
        known = (
            one.code in _OF_LEASES | _OF_CORDONS
            or (one.code in _OF_THE_POWERED_OFF and one.host in disturbed)
            or (one.code in _OF_TAKEN_FUNCTIONS and one.host in with_foreign)
        )
        if not known:
            yield f"{one.host}: {one.code} is found of {one.subject}: {one.observed}"


def host_is_as_wanted(view: HostView, disturbed: bool) -> Iterator[str]:
    """``disturbed``: somebody rebooted it or powered domains off, so a VM that should run may be stopped."""
    machine = view.machine
    for vm in view.vms.values():
        yield from (f"{view.host}: VM {vm.id} {text}" for text in _vm(view, vm, disturbed))
    extra = {key for key in objects_on(machine) if (machine.owner(key) or "") not in view.vms}
    yield from (f"{view.host}: {key} is extra" for key in sorted(extra))
    there = {*objects_on(machine), *(f"{kind}:{name}" for kind in ("data", "attached") for name in machine.data)}
    for key in machine.ledger.owners:
        if machine.owner(key) is not None and key not in there:
            yield f"{view.host}: the ledger has {key}, the host has not"
    placed = {vm.id for vm in view.vms.values() if vm.deallocated is None}
    if {claim.vm for claim in view.claims} != placed:
        yield f"{view.host}: claims are of {sorted(claim.vm for claim in view.claims)}, VMs are {sorted(placed)}"


def _vm(view: HostView, vm: Vm, disturbed: bool) -> Iterator[str]:
    machine, domain = view.machine, view.machine.domains.get(vm.id)
    if vm.state not in {"running", "stopped"}:
        yield f"is {vm.state}"
    if domain is None:
        yield "has no domain"
        return
    if domain.running != (vm.state == "running"):
        yield f"is {vm.state}, its domain {'runs' if domain.running else 'is off'}"
    if vm.spec.adopted is None and (vm.volume not in machine.volumes or vm.seed not in machine.seeds):
        yield "lacks its disk or its seed"
    there = set(objects_on(machine))
    for device in (device.name for device in vm.devices):
        exists = any(key in there and machine.owner(key) == vm.id for key in (f"mdev:{device}", f"vf:{device}"))
        if domain.running and not exists:
            yield f"runs without its device {device}"
        if exists and not domain.running and not disturbed:
            yield f"is off and its device {device} is still there"
    if domain.running != (vm.wanted == "running") and not disturbed:
        yield f"{'runs' if domain.running else 'is off'} and is wanted {vm.wanted}"


def i20_leases_that_are_over_have_ended(views: list[HostView], now: float) -> Iterator[str]:
    """``now``: by the wall clock that everybody agrees on again."""
    for vm in (vm for view in views for vm in view.vms.values()):
        if vm.lease_end is not None and vm.lease_end <= now and vm.deallocated is None:
            yield f"the lease of VM {vm.id} is over and it has its place still"
        if vm.lease_end is None and vm.deallocated == "lease_over":
            yield f"VM {vm.id} lost its place by a lease that it has not"


def host_is_empty(view: HostView) -> Iterator[str]:
    """After every VM was deleted: nothing of ours is left, and what others made is still there."""
    yield from (f"{view.host}: {key} is left" for key in objects_on(view.machine))
    yield from (f"{view.host}: claim of {claim.vm} is left" for claim in view.claims)
    there = {*view.machine.kernel.mdevs, *view.machine.kernel.typed, *view.machine.domains}
    yield from (f"{view.host}: {thing} of somebody else is gone" for thing in view.machine.foreign - there)
