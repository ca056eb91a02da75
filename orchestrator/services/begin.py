# SPDX-License-Identifier: Apache-2.0
"""Writing a new operation, in the transaction that claims what it works on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from orchestrator.core.errors import Conflict
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.pool import Pool
from orchestrator.core.operation import FINISHED, UNFINISHED, UNSETTLED, Operation
from orchestrator.core.vms.backup import Backup
from orchestrator.core.vms.network import Network
from orchestrator.core.vms.vm import Vm
from orchestrator.core.vms.volume import Volume
from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.ports.clock import Clock, Ids
from orchestrator.services.acting import actor, asked
from orchestrator.store.transaction import Transaction

CONVERTS: Final = "convert_network"
"""Kind of the operation that makes a network one of kind ovn."""


def new_operation(
    kind: str,
    about: Vm | Host | Volume | Pool | Network | Backup | str,
    *,
    clock: Clock,
    ids: Ids,
    why: str | None = None,
) -> Operation:
    """Queued, with all its steps pending. ``about``: the id alone of a VM that is not there any more. ``why`` it begins
    where nobody asked for it itself, in words that name nothing of others: a tenant whose request has it begun is
    not named either."""
    subject, name, tenant = _named(about)
    return Operation(
        id=ids.new_uuid(),
        kind=kind,
        subject=subject,
        subject_name=name,
        tenant=tenant,
        state="queued",
        steps=DEFINITIONS[kind].records(),
        attempt=0,
        created_at=clock.now(),
        asked=asked(why),
    )


def _named(about: Vm | Host | Volume | Pool | Network | Backup | str) -> tuple[str, str, str | None]:
    """What it is stored under, what people call it, and whose it is."""
    if isinstance(about, Vm):
        return about.id, about.full_name, about.spec.tenant
    if isinstance(about, Volume | Backup):
        return about.id, about.full_name, about.tenant
    if isinstance(about, Pool):
        return about.id, about.name, None
    if isinstance(about, Network):
        return about.name, f"{about.tenant}/{about.short}", about.tenant
    name = about if isinstance(about, str) else about.name
    return name, name, None


def busy_with(tx: Transaction, host: Host) -> Operation | None:
    """An operation about the host that has not ended; None: there is none."""
    return next((begun for begun in tx.operations.of_subject(host.name) if begun.state not in FINISHED), None)


def check_not_busy(tx: Transaction, host: Host) -> None:
    """:raises Conflict: ``host.busy``"""
    busy = busy_with(tx, host)
    if busy is not None:
        raise Conflict(
            "host.busy",
            f"operation {busy.id} ({busy.kind.replace('_', ' ')}) works on host {host.name}",
            hint="wait until it has ended",
        )


def begin_on_host(
    tx: Transaction, host: Host, kind: str, inputs: dict[str, object], *, clock: Clock, ids: Ids
) -> Operation:
    """One that nothing else may be under way beside on the host. Nothing is submitted.

    :raises Conflict: ``host.busy``"""
    check_not_busy(tx, host)
    operation = new_operation(kind, host, clock=clock, ids=ids)
    record(tx, operation, host=host.name, inputs=inputs)
    return operation


def held_by(operation: Operation, vm: Vm) -> Vm:
    """The VM as it is stored with an operation that begins: what that is to leave is wanted from now on."""
    leaves = DEFINITIONS[operation.kind].leaves
    return replace(vm, operation=operation.id, wanted=vm.wanted if leaves is None else leaves)


def undo_inputs(vm: Vm) -> dict[str, object]:
    """Inputs of an operation on a VM: what it has to put back when it is undone."""
    return {"previous_state": vm.state, "previous_wanted": vm.wanted}


def running_operation(tx: Transaction, vm: Vm) -> str | None:
    """Id of the VM's operation that has not ended; None: there is none."""
    if vm.operation is None or tx.operations.get(vm.operation).operation.state in FINISHED:
        return None
    return vm.operation


def record(
    tx: Transaction,
    operation: Operation,
    *,
    host: str,
    inputs: dict[str, object],
    waits_for: Sequence[str] = (),
    said: str = "",
) -> None:
    """Operation and audit record. ``waits_for``: ids of the operations that have to end first, beside those that
    convert networks of its VM. ``said``: more for the audit than the kind."""
    first = (*waits_for, *_converting(tx, operation.subject))
    tx.operations.add(operation, host=host, inputs=inputs, waits_for=first)
    tx.audit.append(
        at=operation.created_at,
        actor=actor(),
        action=f"{operation.kind} {said}".strip(),
        subject=operation.subject_name,
        outcome="accepted",
    )


def _converting(tx: Transaction, subject: str) -> tuple[str, ...]:
    """Operations that make a network one of kind ovn which a VM of that id has a card on. What they may take back, no
    VM starts with; theirs are about another subject, so the order of a subject's own does not keep them apart."""
    vm = tx.vms.find_id(subject)
    own = set() if vm is None else {port.network for port in vm.ports}
    known = tx.operations.list(kind=CONVERTS, states=UNFINISHED) if own else ()
    return tuple(each.id for each in known if each.subject in own)


def conversions(tx: Transaction) -> tuple[Operation, ...]:
    """Those that hosts have not followed yet or that somebody has to decide about: each may still be taken back."""
    return tx.operations.list(kind=CONVERTS, states=UNSETTLED)
