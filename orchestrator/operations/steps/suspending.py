# SPDX-License-Identifier: Apache-2.0
"""A VM whose memory and devices' state go to its host's disk, and come back: its claims stay its own meanwhile."""

from __future__ import annotations

from typing import Final

from orchestrator.core.actions.suspension import ResumeDomain, SuspendDomain
from orchestrator.core.errors import Conflict
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step
from orchestrator.operations.steps.device import make_devices
from orchestrator.operations.steps.vm_record import as_observed, claim_of
from orchestrator.store.transaction import Transaction


def _max_bytes(context: Context) -> int:
    return context.known_vm().suspended_bytes or 0


def _suspend(context: Context) -> None:
    context.perform(SuspendDomain(vm=context.subject, max_bytes=_max_bytes(context)))


def _resume(context: Context) -> str:
    vm = context.known_vm()
    resume = ResumeDomain(vm=vm.id, boot_policy=vm.spec.boot_policy, memory_bytes=_max_bytes(context))
    done = context.perform(resume)
    if done.changed and not done.message:
        context.warnings.append("its memory was not there any more: it boots from its disk")
    return done.message


def _go_on(context: Context) -> None:
    """What was not written to its end runs; what was is read again, on devices that may be gone meanwhile."""
    make_devices(context)
    _resume(context)


def _suspend_again(context: Context) -> None:
    """Where it is not known whether it resumed. One that has ended meanwhile has nothing left."""
    try:
        _suspend(context)
    except Conflict as error:
        if error.code != "vm.not_running":
            raise
        with context.begin() as tx:
            tx.suspended.end(context.subject)
        context.warnings.append("it resumed and has ended since: its memory is gone")


def _not_suspended(context: Context) -> None:
    with context.begin() as tx:
        tx.suspended.end(context.subject)
    as_observed(context)


def _record_suspended(context: Context) -> None:
    context.write_at_end(lambda tx: tx.vms.set_state(context.subject, "stopped", operation=context.operation_id))


def _record_resumed(context: Context) -> None:
    def resumed(tx: Transaction) -> None:
        tx.suspended.end(context.subject)
        tx.vms.set_state(context.subject, "running", operation=context.operation_id)

    context.write_at_end(resumed)


def _file_text(context: Context) -> tuple[str, ...]:
    vm = context.vm()
    return () if vm is None else (f"volume {vm.memory_file} on host {vm.host}, the memory of VM {vm.full_name}",)


_NO_RECORD_UNDO: Final = "the steps before it set the state back"
SUSPENDING = Step(name="vm_suspending.1", title="check the state", do=claim_of, undo=_not_suspended)
SUSPEND = Step(name="suspend.1", title="memory to disk", do=_suspend, undo=_go_on, remains=_file_text)
RECORD_SUSPENDED = Step(
    name="vm_suspended.1", title="record that it is suspended", do=_record_suspended, no_undo_reason=_NO_RECORD_UNDO
)
RESUME = Step(name="resume.1", title="memory from disk", do=_resume, undo=_suspend_again, remains=_file_text)
RECORD_RESUMED = Step(
    name="vm_resumed.1", title="record that it runs", do=_record_resumed, no_undo_reason=_NO_RECORD_UNDO
)
