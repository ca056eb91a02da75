# SPDX-License-Identifier: Apache-2.0
"""Taking the place that VMs of lower priority have given back."""

from __future__ import annotations

from orchestrator.core.errors import Bug, NoCapacity
from orchestrator.core.hosts.host import Host
from orchestrator.core.labels import kept_from
from orchestrator.core.vms.claim import Claim, DeviceClaim, HostCapacity
from orchestrator.operations.context import Context
from orchestrator.operations.fencing import Suspended
from orchestrator.operations.step import Step
from orchestrator.operations.steps import vm_record
from orchestrator.store.records import ClaimLost


def _claim(context: Context) -> str:
    """As it was planned: nobody else was given the place meanwhile (services/fleet/view.py)."""
    try:
        with context.begin() as tx:
            vm = tx.vms.find_id(context.subject)
            if vm is not None and tx.claims.find(context.subject) is None:
                if context.operation_id not in {one.operation for one in tx.operations.due([context.operation_id])}:
                    raise Suspended  # too early: who has to go has not gone
                check_not_kept(tx.hosts.get(vm.host), vm.spec.tenant)
                tx.claims.take(*_planned(context))
    except ClaimLost as error:
        raise NoCapacity(
            "preemption.not_freed",
            "the place that was to be freed for it is not free",
            hint="try again: a VM of lower priority could not be stopped, or its host does not answer",
            details=str(error),
        ) from error
    return vm_record.claim_of(context)


def check_not_kept(host: Host, tenant: str) -> None:
    """:raises ClaimLost: for another tenant; whoever planned it before that has to plan again"""
    keeper = kept_from(host.labels, tenant)
    if keeper is not None:
        raise ClaimLost(f"host {host.name} is kept for tenant {keeper} now")


def _planned(context: Context) -> tuple[Claim, HostCapacity]:
    claim, capacity = context.inputs.get("claim"), context.inputs.get("capacity")
    if not isinstance(claim, dict) or not isinstance(capacity, dict):
        raise Bug("operation.inputs", f"operation {context.operation_id} lacks its planned claim")
    devices = tuple(DeviceClaim(**{**one, "slots": tuple(one["slots"])}) for one in claim["devices"])
    cpus = tuple(claim.get("cpus", ()))
    return Claim(**{**claim, "devices": devices, "cpus": cpus}), HostCapacity(**capacity)


CLAIM_DEALLOCATED = Step(
    name="claim_freed.1",
    title="claim the device that is freed",
    do=_claim,
    undo=vm_record.forget_vm,
    remains=vm_record.claim_text,
)
