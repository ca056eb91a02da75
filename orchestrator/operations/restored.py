# SPDX-License-Identifier: Apache-2.0
"""What became of operations that a restored database takes for unfinished.

The hosts went on after the backup, so an operation may have ended long ago, and its VM may have been used since. It is
not walked again and not taken back: what its host shows is written down, and nothing there is changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Literal

from orchestrator.core.attachments.host_facts import things_of
from orchestrator.core.errors import Conflict, Retryable
from orchestrator.core.hosts.snapshot import DomainSnapshot, HostSnapshot
from orchestrator.core.operation import Operation, OperationState
from orchestrator.core.vms.cleaning import Evidence
from orchestrator.core.vms.vm import Vm
from orchestrator.core.vms.volume import Volume, file_of
from orchestrator.operations.steps.moving import exchange
from orchestrator.operations.steps.vm_record import drop_vm
from orchestrator.operations.steps.volumes import with_volumes
from orchestrator.store.records import Job
from orchestrator.store.transaction import Transaction

CODE: Final = "operation.restored"
_MAKES_VM: Final = frozenset({"create_vm", "create_stopped_vm", "preempt_for_vm", "adopt_vm"})

_EVACUATES: Final = {"evacuate_vm": 3, "evacuate_stopped_vm": 2}
"""How much of its VM the other host shows (:func:`_how_much`) when it has ended."""


def is_restored(operation: Operation) -> bool:
    """Whether a backup has it as unfinished."""
    return (operation.error or {}).get("code") == CODE


def is_about_its_host(job: Job) -> bool:
    """It changes no VM and no volume: its steps only make, and are done again from the first one on."""
    return job.operation.subject == job.host


def hosts_of(job: Job) -> tuple[str, ...]:
    """Where it may have done something, by name."""
    source, target = (str(job.inputs.get(name, job.host)) for name in ("source", "target"))
    return tuple(dict.fromkeys((target, source)))


def may_be_dead(job: Job, host: str) -> bool:
    """It was when its VM left it; what the other one shows may do."""
    return job.operation.kind in _EVACUATES and host == job.inputs.get("source")


def record_outcome(tx: Transaction, job: Job, snapshots: Mapping[str, HostSnapshot], now: float) -> Operation:
    """Of an operation on a VM or a volume: what ``snapshots``, which are fresh, show of it. It has ended then.

    ``snapshots``: of :func:`hosts_of`, without one that :func:`may_be_dead` and does not answer.

    :raises Retryable: ``libvirt.unreachable``, ``host.unreachable``; :raises Conflict: ``agent.ledger_lost``"""
    for snapshot in snapshots.values():
        _check_whole(snapshot)
    operation, vm = job.operation, tx.vms.find_id(job.operation.subject)
    _record_copy(tx, job, snapshots)
    if vm is not None and vm.operation == operation.id:
        moved = _settle_move(tx, job, vm, snapshots, now)
        state, reason = _of_vm(tx, job, moved or vm, snapshots[(moved or vm).host], now)
        if moved is not None:
            state = "done" if moved.host == job.inputs["target"] else "undone"
            reason = f"{reason}, on host {moved.host}"
    elif tx.volumes.find_id(operation.subject) is not None:
        state, reason = _of_volume(tx, operation, snapshots[job.host])
    else:
        state, reason = "undone", "a later operation has its VM, or it is gone"
    note = f"recorded as its host shows it after the restore: {reason}"
    at, warnings = tx.time.no_earlier(now), (*operation.warnings, note)
    ended = replace(operation, state=state, finished_at=at, remainder=(), warnings=warnings)
    tx.operations.update(ended)
    return ended


def _settle_move(tx: Transaction, job: Job, vm: Vm, snapshots: Mapping[str, HostSnapshot], now: float) -> Vm | None:
    """The VM on that one of its hosts which has it; on the other nothing is claimed for it. None: it did not move.

    Where both have it: it can have run since on the one alone that it was on when its move had ended. If it runs on
    neither, either disk is whole: they are alike, for nothing that moves is started."""
    place = job.inputs.get("place")
    if not isinstance(place, str):
        return None
    source, target = (str(job.inputs[name]) for name in ("source", "target"))
    shown = {host: _how_much(snapshots[host], vm.id) for host in (source, target) if host in snapshots}
    if source not in shown and shown[target] < _EVACUATES[job.operation.kind]:
        raise Retryable(
            "host.unreachable",
            f"the VM may be on host {source} still, which does not answer",
            hint="try again when the host is back",
        )
    has = max(shown, key=lambda host: shown[host])
    if has != vm.host:
        exchange(tx, vm, place)
    tx.places.let_go(place, Evidence(at=now, operation=job.operation.id, vm=vm.id))
    return tx.vms.find_id(vm.id)


def _how_much(snapshot: HostSnapshot, vm_id: str) -> int:
    """The more, the more of the VM is there."""
    domains = [domain for domain in snapshot.domains if domain.uuid == vm_id and domain.owner == vm_id]
    if domains:
        return 3 if domains[0].active else 2
    return 1 if any(file.owner == vm_id for file in snapshot.volumes) else 0


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


def _of_vm(tx: Transaction, job: Job, vm: Vm, snapshot: HostSnapshot, now: float) -> tuple[OperationState, str]:
    _record_volumes(tx, job, vm, snapshot)
    if not any(file.name == vm.memory_file for file in snapshot.volumes):
        tx.suspended.end(vm.id)
    domain = next(
        (candidate for candidate in snapshot.domains if candidate.uuid == vm.id and candidate.owner == vm.id), None
    )
    if domain is not None:
        record_domain(tx, vm, domain)
        wanted: OperationState = "undone" if job.operation.kind == "delete_vm" else "done"
        return wanted, f"its VM is {'running' if domain.active else 'stopped'}"
    left = things_of(snapshot, vm.id)
    if not left and job.operation.kind in {*_MAKES_VM, "delete_vm"}:
        drop_vm(tx, vm, Evidence(at=now, operation=job.operation.id, otherwise="seen_gone"))
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


def _record_copy(tx: Transaction, job: Job, snapshots: Mapping[str, HostSnapshot]) -> None:
    """Of a data volume, which the operation makes: what is there is whole. In a pool nothing shows what is there."""
    stored = job.inputs.get("made")
    if stored is None:
        return
    made = Volume.from_fields(stored)
    if made.pool is None and all(made.file != item.name for item in snapshots[job.host].data):
        tx.volumes.remove(made.id)
    else:
        tx.volumes.made(made.id)


def _of_volume(tx: Transaction, operation: Operation, snapshot: HostSnapshot) -> tuple[OperationState, str]:
    """One that was being deleted, copied or made larger."""
    volume = tx.volumes.find_id(operation.subject)
    has_file = volume is not None and any(file.name == volume.file for file in snapshot.data)
    if operation.kind != "delete_volume":
        return ("done", "its file is there") if has_file else ("undone", "its file is not there")
    if has_file:
        tx.volumes.deleting(operation.subject, ready=True)
        return "undone", "its file is there: delete it again"
    tx.volumes.remove(operation.subject)
    return "done", "its file is not there"
