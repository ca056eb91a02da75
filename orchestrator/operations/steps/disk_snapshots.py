# SPDX-License-Identifier: Apache-2.0
"""Snapshots of a VM's disk: taken, removed, put in the disk's place. The VM itself stays as it is."""

from __future__ import annotations

from typing import Final

from orchestrator.core.actions.backups import UsesRepository
from orchestrator.core.actions.disk_snapshots import CopySnapshot, LongCopy, RestoreSnapshot, TakeSnapshot
from orchestrator.core.actions.host_actions import ActionResult, DeleteVolume
from orchestrator.core.units import show_size
from orchestrator.core.vms.disk_snapshot import QUIESCED, TakenOf, quiesced_of, snapshot_file
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step
from orchestrator.operations.steps.vm_record import as_before, say_stopped

_ASK_AGAIN_S: Final = 1.0


def copied(context: Context, action: LongCopy | UsesRepository) -> ActionResult:
    """Asked for until it is done. Left when the operation is cancelled; what takes the step back ends it."""
    while (result := context.perform(action)).unfinished:
        context.pause(_ASK_AGAIN_S)
    return result


def file_of(context: Context) -> str:
    """Name of the snapshot's file."""
    return snapshot_file(context.subject, context.text("snapshot_id"))


def _name(context: Context) -> str:
    return context.text("snapshot")


def forget(context: Context) -> None:
    """Nothing of it is left on the host. Gone already is fine."""
    with context.begin() as tx:
        tx.disk_snapshots.remove(context.subject, context.text("snapshot_id"))


def not_claimed(context: Context) -> None:
    forget(context)
    as_before(context)


def _copy_not_claimed(context: Context) -> None:
    forget_copy(context)
    as_before(context)


def forget_copy(context: Context) -> None:
    """Nothing of it is left on the host. Gone already is fine."""
    with context.begin() as tx:
        tx.disk_snapshots.remove(context.subject, context.text("copy_id"))


def stopped_without_copy(context: Context) -> None:
    """Nothing of the copy is left on the host."""
    forget_copy(context)
    say_stopped(context)


def _take(context: Context) -> str:
    vm, snapshot_id = context.known_vm(), context.text("snapshot_id")
    size = next((its.size_bytes for its in vm.snapshots if its.id == snapshot_id), vm.spec.disk_bytes)
    taken = TakeSnapshot(vm=vm.id, disk=vm.volume, volume=file_of(context), size_bytes=size)
    result = copied(context, taken)
    taken_of: TakenOf = "running" if result.message == "running" else "stopped"
    quiesced = quiesced_of(result.quiesced)  # None also of a file whose name was drawn for it
    context.write_at_end(lambda tx: tx.disk_snapshots.taken(vm.id, snapshot_id, taken_of, quiesced))
    return show_size(size) if taken_of == "stopped" else f"{show_size(size)}, {how_quiet(quiesced)}"


def how_quiet(quiesced: str | None) -> str:
    """Of a copy of a disk of a VM that ran."""
    if quiesced == QUIESCED:
        return "its file systems were frozen"
    return "as after a power cut" if quiesced is None else f"as after a power cut: {quiesced}"


def take_back(context: Context) -> None:
    context.perform(DeleteVolume(vm=context.subject, volume=file_of(context)))


def delete(context: Context) -> str:
    context.perform(DeleteVolume(vm=context.subject, volume=file_of(context)))
    context.write_at_end(lambda tx: tx.disk_snapshots.remove(context.subject, context.text("snapshot_id")))
    return _name(context)


def copy_file(context: Context) -> str:
    return snapshot_file(context.subject, context.text("copy_id"))


def _copy_back(context: Context) -> str:
    vm, copy = context.known_vm(), copy_file(context)
    size = vm.spec.disk_bytes
    copied(
        context,
        CopySnapshot(vm=vm.id, disk=vm.volume, volume=copy, of=vm.id, snapshot=file_of(context), size_bytes=size),
    )
    return show_size(size)


def drop_copy(context: Context) -> None:
    context.perform(DeleteVolume(vm=context.subject, volume=copy_file(context)))


def _restore(context: Context) -> str:
    vm, copy = context.known_vm(), copy_file(context)
    size = vm.spec.disk_bytes
    put = RestoreSnapshot(vm=vm.id, disk=vm.volume, volume=file_of(context), size_bytes=size, copy=copy)
    copied(context, put)
    context.write_at_end(lambda tx: tx.disk_snapshots.remove(vm.id, context.text("copy_id")))
    return _name(context)


def copy_text(context: Context) -> tuple[str, ...]:
    return (f"volume {copy_file(context)} on host {context.host_name}, a copy of a snapshot",)


def file_text(context: Context) -> tuple[str, ...]:
    return (f"volume {file_of(context)} on host {context.host_name}, a snapshot of VM {context.text('vm')}",)


def _disk_text(context: Context) -> tuple[str, ...]:
    return (f"the disk of VM {context.text('vm')} on host {context.host_name}: as it was, or as the snapshot",)


CLAIMED = Step(name="snapshot_claimed.1", title="claim the disk", do=_name, undo=not_claimed)
TAKE = Step(name="take_snapshot.1", title="copy the disk", do=_take, undo=take_back, remains=file_text)
CHECKED = Step(name="snapshot_checked.1", title="check the state", do=_name, undo=as_before)
DELETE = Step(
    name="delete_snapshot.1",
    title="remove the snapshot",
    do=delete,
    no_undo_reason="what was in it is gone",
    remains=file_text,
)
COPY_CLAIMED = Step(name="copy_claimed.1", title="claim the disk", do=_name, undo=_copy_not_claimed)
COPY_BACK = Step(name="copy_snapshot.1", title="copy the snapshot", do=_copy_back, undo=drop_copy, remains=copy_text)
COPIED = Step(name="snapshot_copied.1", title="go on to the end", do=_name, undo=lambda _: None)
"""From here it is not cancelled: the disk may be replaced."""
RESTORE = Step(
    name="restore_snapshot.1",
    title="put it in the disk's place",
    do=_restore,
    no_undo_reason="what was on the disk before is gone",
    remains=_disk_text,
)
