# SPDX-License-Identifier: Apache-2.0
"""What became of operations that a restored database takes for unfinished.

The hosts went on after the backup, so an operation may have ended long ago, and its VM may have been used since. It is
not walked again and not taken back: what its host shows is written down, and nothing there is changed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

from orchestrator.core.attachments.host_facts import things_of
from orchestrator.core.errors import Conflict, Retryable
from orchestrator.core.hosts.snapshot import DomainSnapshot, HostSnapshot
from orchestrator.core.operation import Operation, OperationState
from orchestrator.core.vms.vm import Vm
from orchestrator.core.vms.volume import Volume, file_of
from orchestrator.operations.steps.vm_record import drop_vm
from orchestrator.operations.steps.volumes import with_volumes
from orchestrator.store.records import Job
from orchestrator.store.transaction import Transaction

CODE: Final = "operation.restored"
_MAKES_VM: Final = frozenset({"create_vm", "create_stopped_vm", "preempt_for_vm", "adopt_vm"})


def is_restored(operation: Operation) -> bool:
    """Whether a backup has it as unfinished."""
    return (operation.error or {}).get("code") == CODE


def is_about_its_host(job: Job) -> bool:
    """It changes no VM and no volume: its steps only make, and are done again from the first one on."""
    return job.operation.subject == job.host


def record_outcome(tx: Transaction, job: Job, snapshot: HostSnapshot, now: float) -> Operation:
    """Of an operation on a VM or a volume: what ``snapshot``, which is fresh, shows of it. It has ended then.

    :raises Retryable: ``libvirt.unreachable``; :raises Conflict: ``agent.ledger_lost``"""
    _check_whole(snapshot)
    operation, vm = job.operation, tx.vms.find_id(job.operation.subject)
    if vm is not None and vm.operation == operation.id:
        state, reason = _of_vm(tx, job, vm, snapshot)
    elif tx.volumes.find_id(operation.subject) is not None:
        state, reason = _of_volume(tx, operation.subject, snapshot)
    else:
        state, reason = "undone", "a later operation has its VM, or it is gone"
    note = f"recorded as its host shows it after the restore: {reason}"
    at, warnings = tx.time.no_earlier(now), (*operation.warnings, note)
    ended = replace(operation, state=state, finished_at=at, remainder=(), warnings=warnings)
    tx.operations.update(ended)
    return ended


def _check_whole(snapshot: HostSnapshot) -> None:
    if snapshot.ledger_lost:
        raise Conflict(
            "agent.ledger_lost",
            "the host's agent has lost its ledger: whose the things there are is not known",
            hint="'vgpuctl doctor --repair' writes it again from the database and the host",
        )
    if snapshot.problems and not snapshot.domains:
        raise Retryable(
            "libvirt.unreachable",
            "the host does not show what VMs it has",
            hint="put its own problem right, then try again",
            details=snapshot.problems[0],
        )


def _of_vm(tx: Transaction, job: Job, vm: Vm, snapshot: HostSnapshot) -> tuple[OperationState, str]:
    _record_volumes(tx, job, vm, snapshot)
    domain = next(
        (candidate for candidate in snapshot.domains if candidate.uuid == vm.id and candidate.owner == vm.id), None
    )
    if domain is not None:
        record_domain(tx, vm, domain)
        wanted: OperationState = "undone" if job.operation.kind == "delete_vm" else "done"
        return wanted, f"its VM is {'running' if domain.active else 'stopped'}"
    left = things_of(snapshot, vm.id)
    if not left and job.operation.kind in {*_MAKES_VM, "delete_vm"}:
        drop_vm(tx, vm)
        return "done" if job.operation.kind == "delete_vm" else "undone", "nothing of its VM is there"
    tx.vms.set_state(vm.id, "stopped", operation=job.operation.id, wanted="stopped")
    return "done", f"its VM is not defined there; there is {', '.join(left) or 'nothing of it'}"


def record_domain(tx: Transaction, vm: Vm, domain: DomainSnapshot) -> None:
    """The VM runs or is stopped as its domain is, and that is wanted of it."""
    state: Literal["running", "stopped"] = "running" if domain.active else "stopped"
    by = vm.operation or ""
    tx.vms.set_state(vm.id, state, operation=by, addresses=domain.addresses, wanted=state)


def _record_volumes(tx: Transaction, job: Job, vm: Vm, snapshot: HostSnapshot) -> None:
    """Those that the operation gives to its VM: made where their file is, otherwise as they were before."""
    stored = job.inputs.get("volumes")
    given = tuple(Volume.from_fields(item) for item in stored) if isinstance(stored, list) else ()
    files = {item.name for item in snapshot.data}
    absent = tuple(item for item in given if item.file not in files)
    for item in given:
        if item.file in files:
            tx.volumes.made(item.id)
    if absent:
        tx.volumes.put_back(absent, vm.id)
        kept = tuple(item for item in vm.spec.volumes if file_of(item) not in {gone.file for gone in absent})
        tx.vms.set_spec(vm.id, with_volumes(vm, kept).spec)


def _of_volume(tx: Transaction, volume_id: str, snapshot: HostSnapshot) -> tuple[OperationState, str]:
    """One that was being deleted."""
    volume = tx.volumes.find_id(volume_id)
    if volume is not None and any(file.name == volume.file for file in snapshot.data):
        tx.volumes.deleting(volume_id, ready=True)
        return "undone", "its file is there: delete it again"
    tx.volumes.remove(volume_id)
    return "done", "its file is not there"
