# SPDX-License-Identifier: Apache-2.0
"""Devices that a VM gets or loses while it is, running or stopped: its domain has them, or does not any more."""

from __future__ import annotations

from orchestrator.core.actions.host_actions import DefineDomain
from orchestrator.core.actions.volumes import PlugDevices
from orchestrator.core.vms.vm import Vm
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step
from orchestrator.operations.steps.vm_record import ran_before, state_before
from orchestrator.operations.steps.volume_keys import data_keys


def names_of(context: Context, key: str) -> tuple[str, ...]:
    """What the VM's volumes or networks are called in its specification, before (``had``) or after (``has``) the
    operation."""
    stored = context.inputs.get(key)
    return tuple(str(name) for name in stored) if isinstance(stored, list) else ()


def plug(context: Context, vm: Vm) -> None:
    """``vm``: as its domain is to be. What was stopped is defined, whatever its host's agent can do."""
    if ran_before(context):
        context.perform(PlugDevices(vm=vm.id, domain=vm.domain, keys=data_keys(context, vm)))
    else:
        context.perform(DefineDomain(vm=vm.id, domain=vm.domain))


def record_plugged(context: Context) -> None:
    """In the commit that ends the step: it runs or is stopped as before, and has so many ports left."""
    by, state = context.operation_id, state_before(context)
    if state == "running":
        context.observe_for_the_end()
    context.write_at_end(lambda tx: tx.vms.set_state(context.subject, state, operation=by))


PLUGGED = Step(
    name="vm_plugged.1",
    title="record that the VM has it",
    do=record_plugged,
    no_undo_reason="the steps before it take it back",
)
