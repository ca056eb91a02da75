# SPDX-License-Identifier: Apache-2.0
"""Deallocating a VM: its claim is given back, its disk stays: at the end of its lease, or for a more important one."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from orchestrator.core.operation import FINISHED, Operation
from orchestrator.core.tenancy.quota import preemptible
from orchestrator.core.vms.priority import Priority, rank
from orchestrator.core.vms.vm import DeallocationReason, Vm
from orchestrator.ports.clock import Clock, Ids
from orchestrator.services.begin import held_by, new_operation, record, undo_inputs
from orchestrator.store.transaction import Transaction

_WHY: Final[dict[DeallocationReason, str]] = {
    "lease_over": "its lease has ended",
    "preempted": "a VM of higher priority takes its place",
}


def begin_deallocation(tx: Transaction, vm: Vm, why: DeallocationReason, *, clock: Clock, ids: Ids) -> Operation:
    """The operation that stops it and gives its claim back. The VM must be running or stopped, and :func:`idle`."""
    operation = new_operation("free_vm", vm, clock=clock, ids=ids, why=_WHY[why])
    tx.vms.update(replace(held_by(operation, vm), state="stopping"))
    inputs: dict[str, object] = {"vm": vm.spec.name, **undo_inputs(vm), "freed": why}
    record(tx, operation, host=vm.host, inputs=inputs)
    return operation


def idle(tx: Transaction, vm: Vm) -> bool:
    """Nothing works on it, or has got stuck with it."""
    return all(operation.state in FINISHED - {"stuck"} for operation in tx.operations.of_subject(vm.id))


def may_preempt(tx: Transaction, tenant: str, priority: Priority) -> bool:
    """Whether the tenant's policy lets others be stopped for a VM of that priority."""
    policy = tx.policies.get(tenant)
    return policy.preempt and rank(priority) <= rank(policy.max_priority)


def preemptible_now(tx: Transaction, *, tenant: str, priority: Priority) -> dict[str, Vm]:
    """By id, the VMs that may be stopped for one of that tenant and priority."""
    vms = tx.vms.list()
    chosen = preemptible(vms, tx.quotas.list(), tenant=tenant, priority=priority)
    return {vm.id: vm for vm in vms if vm.id in chosen and idle(tx, vm)}
