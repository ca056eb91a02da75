# SPDX-License-Identifier: Apache-2.0
"""Data volumes on hosts, and which VM has them.

An operation that gives volumes to its VM keeps in its inputs how they were before (``volumes``): a file that it makes
it takes back, and a volume that nobody had placed is placed nowhere again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from orchestrator.core.actions.host_actions import (
    HostAction,
)
from orchestrator.core.actions.volumes import (
    AttachVolume,
    CreateDataVolume,
    DeleteDataVolume,
    DetachVolume,
)
from orchestrator.core.errors import Conflict
from orchestrator.core.vms.vm import Vm
from orchestrator.core.vms.volume import Volume, file_of
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step
from orchestrator.store.transaction import Transaction


def volumes_before(context: Context) -> tuple[Volume, ...]:
    """Those that the operation gives to its VM, as they were; none of an operation of an older version. One whose file
    was there already is none that it makes, whatever the database said."""
    stored = context.inputs.get("volumes")
    volumes = tuple(Volume.from_fields(one) for one in stored) if isinstance(stored, list) else ()
    return tuple(one if context.made(one.file) else _there(one, context.host_name) for one in volumes)


def _there(volume: Volume, host: str) -> Volume:
    return replace(volume, state="ready", host=volume.host or host)


def _find_files(context: Context) -> None:
    """Before any is made: what is on a tenant's volume is not this operation's to remove."""
    new = [one.file for one in volumes_before(context) if one.state == "new" and context.is_first(one.file)]
    if new:
        files = {one.name for one in context.world.link.observe(context.host()).data}
        for file in files.intersection(new):
            context.note_found(file)


def giving(vm: Vm, volumes: Iterable[Volume]) -> Iterator[HostAction]:
    """Make those that are new, and write on the host that the VM has all of them."""
    for one in volumes:
        if one.state == "new":
            yield CreateDataVolume(volume=one.file, size_bytes=one.size_bytes)
        yield AttachVolume(vm=vm.id, volume=one.file)


def give_volumes(context: Context, vm: Vm) -> None:
    """Those that the operation gives to its VM."""
    _find_files(context)
    given = volumes_before(context)
    for action in giving(vm, given):
        if isinstance(action, AttachVolume):
            context.make(_attached(action.volume), action)
        else:
            context.perform(action)

    def write(tx: Transaction) -> None:
        for one in given:
            tx.volumes.made(one.id)

    if given:
        context.write_at_end(write)


def _attached(file: str) -> str:
    return f"attached {file}"


def take_volumes_back(context: Context, vm: Vm) -> None:
    """The inverse of :func:`give_volumes`."""
    for one in reversed(volumes_before(context)):
        if context.made(_attached(one.file)):
            context.perform(DetachVolume(vm=vm.id, volume=one.file))
        if one.state == "new":
            context.perform(DeleteDataVolume(volume=one.file))


def detach_all(context: Context, vm: Vm) -> None:
    """Of a VM that is being deleted; the volumes stay."""
    for one in vm.spec.volumes:
        context.perform(DetachVolume(vm=vm.id, volume=file_of(one)))


def put_back(tx: Transaction, context: Context) -> None:
    """In the database: as they were before the operation gave them to its VM."""
    tx.volumes.put_back(volumes_before(context), context.subject)


def volume_text(context: Context) -> tuple[str, ...]:
    """What remains of those that the operation gives to its VM."""
    return tuple(f"data volume {one.file} on host {context.host_name}" for one in volumes_before(context))


def check_no_volumes(tx: Transaction, host: str) -> None:
    """Of a host that is to be given back: what is on it would be lost.

    :raises Conflict: ``host.has_volumes``"""
    there = [one.full_name for one in tx.volumes.list(host=host) if one.state != "lost"]
    if there:
        more = f" and {len(there) - 5} more" if len(there) > 5 else ""
        raise Conflict(
            "host.has_volumes",
            f"host {host} has volumes: {', '.join(there[:5])}{more}",
            hint="delete them first; a volume never moves",
        )


def _said(context: Context) -> str:
    return context.text("volume")


def _file(context: Context) -> str:
    return file_of(f"{context.text('volume')}.{context.subject}")


def _not_deleted(context: Context) -> None:
    with context.begin() as tx:
        tx.volumes.deleting(context.subject, ready=True)


def _delete(context: Context) -> str:
    context.perform(DeleteDataVolume(volume=_file(context)))
    return context.text("volume")


def _forget(context: Context) -> None:
    context.write_at_end(lambda tx: tx.volumes.remove(context.subject))


def forget_volume(context: Context) -> None:
    """The operator has cleaned up: nothing is left of it."""
    with context.begin() as tx:
        tx.volumes.remove(context.subject)


def _file_text(context: Context) -> tuple[str, ...]:
    return (f"data volume {_file(context)} on host {context.host_name}",)


DELETING = Step(name="volume_deleting.1", title="check the state", do=_said, undo=_not_deleted)
DELETE = Step(
    name="delete_data_volume.1",
    title="remove the data volume",
    do=_delete,
    no_undo_reason="what was on it is gone",
    remains=_file_text,
)
FORGET = Step(
    name="forget_volume.1",
    title="release its place",
    do=_forget,
    no_undo_reason="nothing of it is left on the host",
)
