# SPDX-License-Identifier: Apache-2.0
"""Snapshots of a VM's disk, and of its data volumes at the same moment: taken, removed, put in their place. The VM
itself stays as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from orchestrator.core.actions.backups import UsesRepository
from orchestrator.core.actions.disk_snapshots import (
    CopiedVolume,
    CopySnapshot,
    LongCopy,
    RestoreSnapshot,
    TakeSnapshot,
)
from orchestrator.core.actions.host_actions import ActionResult, DeleteVolume
from orchestrator.core.actions.volumes import CopyDataVolume, DeleteDataVolume, ReplaceDataVolume
from orchestrator.core.units import show_size
from orchestrator.core.vms.disk_snapshot import QUIESCED, TakenOf, quiesced_of, snapshot_file
from orchestrator.core.vms.volume import Volume, name_on_hosts
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step
from orchestrator.operations.steps.vm_record import as_before, say_stopped
from orchestrator.store.transaction import Transaction

_ASK_AGAIN_S: Final = 1.0


@dataclass(frozen=True)
class CopyOfVolume:
    """What an operation makes of a data volume beside what it makes of the VM's disk."""

    made: Volume
    of: str
    """File that is copied; of a backup that is restored: what is made."""
    replaces: str = ""
    """File that the copy is put in the place of."""

    @property
    def part(self) -> str:
        """What a backup calls the volume."""
        return name_on_hosts(self.made.name.partition("/")[0], self.made.snapshot_of or "", None)

    def fields(self) -> dict[str, object]:
        """As an operation's inputs keep it."""
        return {"made": self.made.fields(), "of": self.of, "replaces": self.replaces}


def copies_of(context: Context) -> tuple[CopyOfVolume, ...]:
    """Of data volumes, each with a row of its own from the beginning; none of an operation of an older version."""
    stored = context.inputs.get("copies")
    return tuple(
        CopyOfVolume(Volume.from_fields(item["made"]), item["of"], item["replaces"])
        for item in (stored if isinstance(stored, list) else ())
    )


def _drop_copies(context: Context) -> None:
    for copy in copies_of(context):
        context.perform(DeleteDataVolume(volume=copy.made.file))


def _forget_copies(tx: Transaction, context: Context) -> None:
    for copy in copies_of(context):
        tx.volumes.remove(copy.made.id)


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
        _forget(tx, context)


def _forget(tx: Transaction, context: Context) -> None:
    tx.disk_snapshots.remove(context.subject, context.text("snapshot_id"))
    _forget_copies(tx, context)


def not_deleted(context: Context) -> None:
    """Neither the snapshot nor those of volumes that were taken with it."""
    with context.begin() as tx:
        for copy in copies_of(context):
            tx.volumes.deleting(copy.made.id, ready=True)
    as_before(context)


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
        _forget_copies(tx, context)


def stopped_without_copy(context: Context) -> None:
    """Nothing of the copy is left on the host."""
    forget_copy(context)
    say_stopped(context)


def _take(context: Context) -> str:
    vm, snapshot_id = context.known_vm(), context.text("snapshot_id")
    size = next((its.size_bytes for its in vm.snapshots if its.id == snapshot_id), vm.spec.disk_bytes)
    copies = copies_of(context)
    volumes = tuple(CopiedVolume(volume=copy.made.file, of=copy.of, size_bytes=copy.made.size_bytes) for copy in copies)
    taken = TakeSnapshot(vm=vm.id, disk=vm.volume, volume=file_of(context), size_bytes=size, volumes=volumes)
    result = copied(context, taken)
    taken_of: TakenOf = "running" if result.message == "running" else "stopped"
    quiesced = quiesced_of(result.quiesced)  # None also of a file whose name was drawn for it

    def write(tx: Transaction) -> None:
        tx.disk_snapshots.taken(vm.id, snapshot_id, taken_of, quiesced)
        for copy in copies:
            tx.volumes.made(copy.made.id, quiesced)

    context.write_at_end(write)
    size += sum(copy.made.size_bytes for copy in copies)
    return show_size(size) if taken_of == "stopped" else f"{show_size(size)}, {how_quiet(quiesced)}"


def how_quiet(quiesced: str | None) -> str:
    """Of a copy of a disk of a VM that ran."""
    if quiesced == QUIESCED:
        return "its file systems were frozen"
    return "as after a power cut" if quiesced is None else f"as after a power cut: {quiesced}"


def take_back(context: Context) -> None:
    context.perform(DeleteVolume(vm=context.subject, volume=file_of(context)))
    _drop_copies(context)


def delete(context: Context) -> str:
    context.perform(DeleteVolume(vm=context.subject, volume=file_of(context)))
    context.write_at_end(lambda tx: tx.disk_snapshots.remove(context.subject, context.text("snapshot_id")))
    return _name(context)


def _delete_copies(context: Context) -> str:
    _drop_copies(context)
    context.write_at_end(lambda tx: _forget_copies(tx, context))
    return _names(context)


def _names(context: Context) -> str:
    return ", ".join(copy.made.name for copy in copies_of(context)) or "none"


def copy_file(context: Context) -> str:
    return snapshot_file(context.subject, context.text("copy_id"))


def _copy_back(context: Context) -> str:
    vm, copy = context.known_vm(), copy_file(context)
    size = vm.spec.disk_bytes
    copied(
        context,
        CopySnapshot(vm=vm.id, disk=vm.volume, volume=copy, of=vm.id, snapshot=file_of(context), size_bytes=size),
    )
    for its in (each for each in copies_of(context) if each.of != each.made.file):
        copied(context, CopyDataVolume(volume=its.made.file, of=its.of, size_bytes=its.made.size_bytes))
        size += its.made.size_bytes
    return show_size(size)


def drop_copy(context: Context) -> None:
    context.perform(DeleteVolume(vm=context.subject, volume=copy_file(context)))
    _drop_copies(context)


def _restore(context: Context) -> str:
    vm, copy = context.known_vm(), copy_file(context)
    size = vm.spec.disk_bytes
    put = RestoreSnapshot(vm=vm.id, disk=vm.volume, volume=file_of(context), size_bytes=size, copy=copy)
    copied(context, put)
    context.write_at_end(lambda tx: tx.disk_snapshots.remove(vm.id, context.text("copy_id")))
    return _name(context)


def _restore_volumes(context: Context) -> str:
    for its in copies_of(context):
        size = its.made.size_bytes
        put = ReplaceDataVolume(volume=its.replaces, of=its.of, copy=its.made.file, size_bytes=size)
        copied(context, put)

    def write(tx: Transaction) -> None:
        _forget_copies(tx, context)
        tx.vms.set_state(context.subject, "stopped", operation=context.operation_id)  # it may have been stuck

    context.write_at_end(write)
    return _names(context)


def _copies_text(context: Context) -> tuple[str, ...]:
    return tuple(f"data volume {copy.made.file} on host {context.host_name}" for copy in copies_of(context))


def copy_text(context: Context) -> tuple[str, ...]:
    return (
        f"volume {copy_file(context)} on host {context.host_name}, a copy of a snapshot", *_copies_text(context),
    )  # fmt: skip


def file_text(context: Context) -> tuple[str, ...]:
    return (
        f"volume {file_of(context)} on host {context.host_name}, a snapshot of VM {context.text('vm')}",
        *_copies_text(context),
    )


def _disk_text(context: Context) -> tuple[str, ...]:
    return (f"the disk of VM {context.text('vm')} on host {context.host_name}: as it was, or as the snapshot",)


def _volumes_text(context: Context) -> tuple[str, ...]:
    files = (its.replaces for its in copies_of(context))
    return tuple(f"data volume {file} on host {context.host_name}: as it was, or as it was to be" for file in files)


CLAIMED = Step(name="snapshot_claimed.1", title="claim the disk", do=_name, undo=not_claimed)
TAKE = Step(name="take_snapshot.1", title="copy the disk", do=_take, undo=take_back, remains=file_text)
CHECKED = Step(name="snapshot_checked.1", title="check the state", do=_name, undo=not_deleted)
DELETE = Step(
    name="delete_snapshot.1",
    title="remove the snapshot",
    do=delete,
    no_undo_reason="what was in it is gone",
    remains=file_text,
)
DELETE_VOLUMES = Step(
    name="delete_volume_snapshots.1",
    title="remove those of data volumes",
    do=_delete_copies,
    no_undo_reason="what was in them is gone",
    remains=_copies_text,
)
"""Behind a step that is not taken back: what is refused here leaves no part of a snapshot that claims to be whole."""
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
RESTORE_VOLUMES = Step(
    name="restore_volumes.1",
    title="put those of data volumes in their place",
    do=_restore_volumes,
    no_undo_reason="what was on them before is gone",
    remains=_volumes_text,
)
"""As :data:`DELETE_VOLUMES`."""
