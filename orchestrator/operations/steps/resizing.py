# SPDX-License-Identifier: Apache-2.0
"""A VM becomes another size on its host. Both sizes are inputs of the operation (core/vms/size.py), and until the last
step what either of them takes is held, so that it can be taken back whole."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.core.errors import Bug, NoCapacity
from orchestrator.core.vms.claim import Claim, HostCapacity
from orchestrator.core.vms.cleaning import Evidence
from orchestrator.core.vms.size import HeldSize
from orchestrator.core.vms.vm import Vm
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step
from orchestrator.operations.steps.device import DEVICE, REMOVE_DEVICE
from orchestrator.operations.steps.domain import REDEFINE, SHUT_DOWN, START
from orchestrator.operations.steps.vm_record import as_before, claim_text, say_stopped, state_before
from orchestrator.store.records import ClaimLost
from orchestrator.store.rows import size_of
from orchestrator.store.transaction import Transaction


def hold(tx: Transaction, vm: Vm, size: HeldSize, capacity: HostCapacity) -> None:
    """The VM has that size, and what the other one takes beyond it is held. Whatever it held before is given back.

    :raises ClaimLost: something of it is another's"""
    _give_back(tx, vm, size, None)
    tx.vms.update(size.of(vm))
    tx.claims.take(_with_disk_of(vm, size.held), capacity)
    if size.beside is not None:
        tx.places.hold(size.place_for(vm))
        tx.claims.take(size.beside, capacity)


def _settle(tx: Transaction, vm: Vm, size: HeldSize, capacity: HostCapacity, evidence: Evidence) -> None:
    """It has that size and nothing else."""
    _give_back(tx, vm, size, evidence)
    tx.vms.update(size.of(vm))
    tx.claims.take(_with_disk_of(vm, size.claim), capacity)


def _with_disk_of(vm: Vm, claim: Claim) -> Claim:
    """What got stuck with a snapshot of its disk may have been abandoned since both sizes were written down."""
    return replace(claim, disk_bytes=vm.spec.host_disk_bytes + vm.snapshot_bytes)


def _give_back(tx: Transaction, vm: Vm, size: HeldSize, evidence: Evidence | None) -> None:
    """``evidence``: of what the VM is not to have any more; None: it is taken again."""
    tx.places.let_go(size.place, evidence)
    tx.claims.free_place(vm.id, None)


def _size(context: Context, key: str) -> HeldSize:
    """``before`` or ``after`` the operation."""
    return size_of(context.inputs.get(key))


def _capacity(context: Context) -> HostCapacity:
    capacity = context.inputs.get("capacity")
    if not isinstance(capacity, dict):
        raise Bug("operation.inputs", f"operation {context.operation_id} lacks its input capacity")
    pairs = tuple((int(node), int(mib)) for node, mib in capacity["node_memory"])
    return HostCapacity(**{**capacity, "node_memory": pairs})


def _become(context: Context, key: str, settled: Evidence | None = None) -> None:
    """``settled``: of what is given back for good; None: the other size is held as well."""
    capacity = _capacity(context)
    try:
        with context.begin() as tx:
            vm = tx.vms.find_id(context.subject)
            if vm is not None:
                size = _size(context, key)
                if settled is None:
                    hold(tx, vm, size, capacity)
                else:
                    _settle(tx, vm, size, capacity, settled)
    except ClaimLost as error:
        raise NoCapacity(
            "vm.size_lost", "what the VM was to have is another's", hint="try again", details=str(error)
        ) from error


def _not_resized(context: Context) -> None:
    _become(context, "before", context.evidence(undone=True))
    as_before(context)


def _both_sizes(context: Context) -> str:
    return f"{_size(context, 'before').profile} → {_size(context, 'after').profile}"


def _stop(context: Context) -> str:
    message = str(SHUT_DOWN.do(context))
    REMOVE_DEVICE.do(context)
    return message


def _start_again(context: Context) -> None:
    for step in (DEVICE, REDEFINE, START):
        step.do(context)


def _resize(context: Context) -> str:
    REMOVE_DEVICE.do(context)  # of one that was stopped before it is gone: its host says how
    _become(context, "after")
    REDEFINE.do(context)
    size = _size(context, "after")
    return f"{size.vcpus} vCPUs, {size.memory_mib} MiB"


def _resize_back(context: Context) -> None:
    _become(context, "before")
    REDEFINE.do(context)


def _settled(context: Context) -> None:
    size, capacity = _size(context, "after"), _capacity(context)
    state, by = state_before(context), context.operation_id

    def write(tx: Transaction) -> None:
        vm = tx.vms.find_id(context.subject)
        if vm is not None:
            _settle(tx, vm, size, capacity, context.evidence())
            tx.vms.set_state(vm.id, state, operation=by)

    context.write_at_end(write)


def given_up(context: Context) -> None:
    """The operator has cleaned up: it is of the size that the database has, and stopped."""
    vm = context.vm()
    if vm is not None:
        has_new = vm.devices == _size(context, "after").devices and vm.spec.profile == _size(context, "after").profile
        _become(context, "after" if has_new else "before", context.no_evidence())
        say_stopped(context)


def _remains(context: Context) -> tuple[str, ...]:
    return (*claim_text(context), f"the definition of VM {context.subject} on host {context.host_name}")


RESIZING = Step(
    name="vm_resizing.1", title="claim the other size", do=_both_sizes, undo=_not_resized, remains=claim_text
)
STOP_TO_RESIZE = Step(
    name="shut_down_to_resize.1",
    title="shut down",
    do=_stop,
    undo=_start_again,
    remains=lambda context: (f"VM {context.subject}, stopped on host {context.host_name}",),
)
RESIZED = Step(name="resize.1", title="change its size", do=_resize, undo=_resize_back, remains=_remains)
SETTLED = Step(
    name="resize_settled.1",
    title="release what it does not need",
    do=_settled,
    no_undo_reason="the steps before it take it back",
    remains=claim_text,
)
