# SPDX-License-Identifier: Apache-2.0
"""A VM whose host is dead starts on another one that reaches its disks; and what the dead host does when it is back.

The dead host is asked nothing. Until the step that takes the disks over the VM is where it was, stopped by whoever
fenced the host; that step is refused while anybody has a disk open, and from it on the other host alone may open them
(core/actions/pools.py). So the dead host's agent cannot start the VM when it boots, whatever its ledger says.
"""

from __future__ import annotations

from typing import Final

from orchestrator.core.actions.host_actions import DeleteVolume
from orchestrator.core.actions.pools import LeaveDisks, ShareDisks
from orchestrator.core.actions.volumes import DeleteDataVolume
from orchestrator.core.diff.orphans import removal_of, undefinition_of
from orchestrator.core.errors import Conflict, Fatal, Unknown
from orchestrator.core.hosts.host import LOST
from orchestrator.core.hosts.pool import pool_of
from orchestrator.core.vms.vm import VmState
from orchestrator.core.vms.volume import shared_files
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step
from orchestrator.operations.steps.moving import (
    MOVED,
    change_hosts,
    leave_disks,
    let_go,
    place_claimed,
    place_text,
    share_disks,
)
from orchestrator.operations.steps.vm_record import set_vm_state
from orchestrator.store.transaction import Transaction

_MEMORY: Final = "its memory was on the host that is dead: it boots from its disk"
_FIRMWARE: Final = "its UEFI variables were on the host that is dead: it has new ones"


def _before(context: Context) -> VmState:
    return "running" if context.inputs.get("previous_state") == "running" else "stopped"


def _stays(context: Context) -> None:
    let_go(context, undone=True)
    set_vm_state(context, _before(context))


def _share(context: Context) -> None:
    share_disks(context)
    if context.known_vm().firmware == "uefi" and _FIRMWARE not in context.warnings:
        context.warnings.append(_FIRMWARE)


def _leave(context: Context) -> None:
    leave_disks(context, context.known_vm())


def _take_over(context: Context) -> str:
    """Written down that the VM is here in the commit that ends the step. Refused is what somebody has open."""
    vm = context.known_vm()
    try:
        context.perform(ShareDisks(vm=vm.id, files=shared_files(vm), taken=True))
    except Fatal as error:
        what = f"whether host {context.host_name} has taken the VM's disks over is not known: {error.message}"
        raise Unknown("pool.not_taken", what, hint=error.hint, details=error.details) from error
    if vm.suspended_bytes is not None:
        context.warnings.append(_MEMORY)
        context.write_at_end(lambda tx: tx.suspended.end(vm.id))  # while its claim is the one that has its memory
    return change_hosts(context)


def _settle(context: Context) -> None:
    """What it held on the dead host is free: that gives it up before VMs come there again."""

    def settled(tx: Transaction) -> None:
        tx.places.let_go(context.text("place"), context.evidence())
        tx.vms.set_state(context.subject, _before(context), operation=context.operation_id)

    context.write_at_end(settled)


def _power_off(context: Context) -> str:
    """:raises Conflict: ``host.answers``: it is back since it was to be evacuated, and serves"""
    with context.world.store.read() as tx:
        state = tx.hosts.get(context.host_name).state
    if state not in LOST:
        hint = f"'vgpuctl host uncordon {context.host_name}' has it serve again"
        raise Conflict("host.answers", f"host {context.host_name} is {state} again, and stays on", hint=hint)
    return context.world.fencing.power_off(context.host_name)


def _give_up(context: Context) -> str:
    """All that the host's ledger says is of VMs that run elsewhere by now, but for what is in pools."""
    names = context.inputs.get("vms")
    vms = [str(name) for name in names] if isinstance(names, list) else []
    with context.world.store.read() as tx:
        gone = [name for name in vms if (vm := tx.vms.find_id(name)) is None or vm.host != context.host_name]
    snapshot = context.observe()
    for name in gone:
        for action in removal_of(snapshot, name):
            if not _is_in_pool(action):
                context.perform(action)
        context.perform(LeaveDisks(vm=name, files=()))
        for action in undefinition_of(snapshot, name):  # devices of it that are gone are forgotten with it
            context.perform(action)
    left = [thing for name in gone for thing in context.world.link.things_of(context.host(), name)]
    if left:
        what = "the host still shows something of VMs that run elsewhere"
        raise Unknown("vm.not_gone", what, details=", ".join(left))
    context.observe_for_the_end()
    return f"{len(gone)} VMs"


def _is_in_pool(action: object) -> bool:
    return isinstance(action, (DeleteVolume, DeleteDataVolume)) and pool_of(action.volume) is not None


def _shared_text(context: Context) -> tuple[str, ...]:
    return tuple(f"{file}, known to host {context.host_name}" for file in shared_files(context.known_vm()))


def _left_text(context: Context) -> tuple[str, ...]:
    return (f"whatever host {context.host_name} still has of VMs that run elsewhere by now",)


LEAVING = Step(name="vm_evacuating.1", title="claim a place", do=place_claimed, undo=_stays, remains=place_text)
SHARE = Step(name="share_disks.1", title="disks in pools", do=_share, undo=_leave, remains=_shared_text)
TAKE_OVER = Step(
    name="take_over.1", title="take its disks over", do=_take_over, no_undo_reason=MOVED, remains=_shared_text
)
SETTLED = Step(
    name="evacuation_settled.1", title="release what it had", do=_settle, no_undo_reason=MOVED, remains=place_text
)
POWER_OFF = Step(
    name="power_off_host.1", title="switch its power off", do=_power_off, no_undo_reason="a person switches it on again"
)
GIVE_UP = Step(
    name="give_up_vms.1", title="give up VMs that run elsewhere", do=_give_up, remains=_left_text,
    no_undo_reason="they run elsewhere",
)  # fmt: skip
