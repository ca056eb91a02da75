# SPDX-License-Identifier: Apache-2.0
"""Data volumes on hosts, and which VM has them.

An operation that gives volumes to its VM keeps in its inputs how they were before (``volumes``): a file that it makes
it takes back, and a volume that nobody had placed is placed nowhere again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

from orchestrator.core.actions.host_actions import HostAction
from orchestrator.core.actions.volumes import (
    NEVER_SHRINKS,
    AttachVolume,
    CreateDataVolume,
    DeleteDataVolume,
    DetachVolume,
    GrowDataVolume,
    LinkDataVolume,
)
from orchestrator.core.errors import Conflict
from orchestrator.core.hosts.pool import HOLDER, pool_of
from orchestrator.core.hosts.volume_key import is_encrypted
from orchestrator.core.units import show_size
from orchestrator.core.vms.vm import Vm
from orchestrator.core.vms.volume import Volume, file_of, id_of, is_reader, limited, name_on_hosts, read_by, short_of
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step
from orchestrator.operations.steps.plugging import names_of, plug, record_plugged
from orchestrator.operations.steps.vm_record import as_before, put_back, volumes_before
from orchestrator.operations.steps.volume_keys import key_of
from orchestrator.store.transaction import Transaction


def _find_files(context: Context) -> None:
    """Before any is made: what is on a tenant's volume is not this operation's to remove. No host shows what is in a
    pool (:func:`_make_in_pool`)."""
    new = [item.file for item in volumes_before(context) if item.state == "new" and item.pool is None]
    new = [file for file in new if context.is_first(file)]
    if new:
        files = {item.name for item in context.world.link.observe(context.host()).data}
        for file in files.intersection(new):
            context.note_found(file)


def giving(vm: Vm, volumes: Iterable[Volume]) -> Iterator[HostAction]:
    """Make those that are new, and write on the host that the VM has all of them."""
    for volume in volumes:
        if volume.read_only_of is not None:
            yield LinkDataVolume(volume=volume.file, of=read_by(volume.on_hosts))
        elif volume.state == "new":
            yield CreateDataVolume(volume=volume.file, size_bytes=volume.size_bytes)
        yield AttachVolume(vm=vm.id, volume=volume.file)


def give_volumes(context: Context, vm: Vm) -> None:
    """Those that the operation gives to its VM."""
    _find_files(context)
    given = volumes_before(context)
    for action in giving(vm, given):
        if isinstance(action, AttachVolume):
            _unless_given_up(context, action, partial(context.make, _attached(action.volume)))
        elif isinstance(action, CreateDataVolume) and is_encrypted(action.volume):
            passphrase = key_of(context, id_of(action.volume)).passphrase
            context.perform(replace(action, passphrase=passphrase))
        elif isinstance(action, CreateDataVolume) and pool_of(action.volume) is not None:
            _make_in_pool(context, action)
        elif isinstance(action, LinkDataVolume):
            _unless_given_up(context, action, context.perform)
        else:
            context.perform(action)

    def write(tx: Transaction) -> None:
        for volume in given:
            tx.volumes.made(volume.id)

    if given:
        context.write_at_end(write)


def _make_in_pool(context: Context, action: CreateDataVolume) -> None:
    try:
        context.make(action.volume, action)
    except Conflict as error:
        if error.code == "volume.differs":
            context.note_found(action.volume)
        raise


def _unless_given_up(
    context: Context, action: AttachVolume | DeleteDataVolume | LinkDataVolume, perform: Callable[[HostAction], object]
) -> None:
    """Where a host of a pool refuses it because another may open the volume, and that one is given up, done anyway."""
    try:
        perform(action)
    except Conflict as error:
        machine = next((reason.subjects[0] for reason in error.reasons if reason.code == HOLDER), None)
        with context.world.store.read() as tx:
            known = {host.machine_id for host in tx.hosts.list() if host.state != "forgotten"}
        if machine is None or machine in known:
            raise
        perform(replace(action, gone=machine))


def _attached(file: str) -> str:
    return f"attached {file}"


def take_volumes_back(context: Context, vm: Vm) -> None:
    """The inverse of :func:`give_volumes`."""
    for volume in reversed(volumes_before(context)):
        if context.made(_attached(volume.file)):
            context.perform(DetachVolume(vm=vm.id, volume=volume.file))
        if volume.state == "new":
            context.perform(DeleteDataVolume(volume=volume.file))


def detach_all(context: Context, vm: Vm) -> None:
    """Of a VM that is being deleted; the volumes stay."""
    for name in vm.spec.volumes:
        _detach(context, vm.id, name)


def _detach(context: Context, vm: str, name: str) -> None:
    context.perform(DetachVolume(vm=vm, volume=file_of(name)))
    if is_reader(name):
        context.perform(DeleteDataVolume(volume=file_of(name)))


def volume_text(context: Context) -> tuple[str, ...]:
    """What remains of those that the operation gives to its VM."""
    return tuple(f"data volume {volume.file} on host {context.host_name}" for volume in volumes_before(context))


def check_no_volumes(tx: Transaction, host: str) -> None:
    """Of a host that is to be given back: what is on it would be lost.

    :raises Conflict: ``host.has_volumes``"""
    names = [volume.full_name for volume in tx.volumes.list(host=host, snapshots=False) if volume.state != "lost"]
    if names:
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        raise Conflict(
            "host.has_volumes",
            f"host {host} has volumes: {', '.join(names[:5])}{more}",
            hint="delete them first; a volume never moves",
        )


def _said(context: Context) -> str:
    return context.text("volume")


def _file(context: Context) -> str:
    pool, encrypted = context.inputs.get("pool"), context.inputs.get("encrypted") is True
    in_pool = pool if isinstance(pool, str) else None
    return file_of(name_on_hosts(context.text("volume"), context.subject, in_pool, encrypted=encrypted))


def _not_deleted(context: Context) -> None:
    with context.begin() as tx:
        tx.volumes.deleting(context.subject, ready=True)


def _delete_file(context: Context) -> str:
    _unless_given_up(context, DeleteDataVolume(volume=_file(context)), context.perform)
    return context.text("volume")


def _forget_row(context: Context) -> str | None:
    context.write_at_end(lambda tx: tx.volumes.remove(context.subject))
    return "key destroyed" if context.inputs.get("encrypted") is True else None


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
    do=_delete_file,
    no_undo_reason="what was on it is gone",
    remains=_file_text,
)
FORGET = Step(
    name="forget_volume.1",
    title="release its place",
    do=_forget_row,
    no_undo_reason="nothing of it is left on the host",
)


def with_volumes(vm: Vm, volumes: tuple[str, ...]) -> Vm:
    """The VM with these data volumes in its specification."""
    return replace(vm, spec=replace(vm.spec, volumes=volumes))


def _told(context: Context) -> str:
    return ", ".join(short_of(name) for name in names_of(context, "has")) or "none"


def not_attached(context: Context) -> None:
    """The VM has what it had before."""
    as_before(context)
    with context.begin() as tx:
        put_back(tx, context)
        vm = tx.vms.find_id(context.subject)
        if vm is not None:
            tx.vms.set_spec(vm.id, with_volumes(vm, names_of(context, "had")).spec)


def _give(context: Context) -> str:
    give_volumes(context, context.known_vm())
    return ", ".join(volume.name for volume in volumes_before(context))


def _give_back(context: Context) -> None:
    vm = context.vm()
    if vm is not None:
        take_volumes_back(context, vm)


def _define(context: Context, key: str) -> None:
    plug(context, with_volumes(context.known_vm(), names_of(context, key)))


def _gone(context: Context) -> tuple[str, ...]:
    """Those that the VM had and shall not have any more."""
    return tuple(name for name in names_of(context, "had") if name not in names_of(context, "has"))


def _take(context: Context) -> str:
    for name in _gone(context):
        _detach(context, context.subject, name)
    return ", ".join(short_of(name) for name in _gone(context))


def _return(context: Context) -> None:
    for name in _gone(context):
        if is_reader(name):
            context.perform(LinkDataVolume(volume=file_of(name), of=read_by(name)))
        context.perform(AttachVolume(vm=context.subject, volume=file_of(name)))


def _definition_text(context: Context) -> tuple[str, ...]:
    return (f"the definition of VM {context.text('vm')} on host {context.host_name}",)


def _gone_text(context: Context) -> tuple[str, ...]:
    return tuple(f"data volume {file_of(name)} on host {context.host_name}" for name in _gone(context))


def _record_taken(context: Context) -> None:
    record_plugged(context)

    def write(tx: Transaction) -> None:
        vm = tx.vms.find_id(context.subject)
        if vm is not None:
            tx.vms.set_spec(vm.id, with_volumes(vm, names_of(context, "has")).spec)
        for name in _gone(context):
            tx.volumes.detach(id_of(name), context.subject)

    context.write_at_end(write)


GIVEN = Step(name="vm_volumes.1", title="check the state", do=_told, undo=not_attached)
TAKING = Step(name="vm_volumes_left.1", title="check the state", do=_told, undo=as_before)
ON_HOST = Step(name="attach_volume.1", title="data volume", do=_give, undo=_give_back, remains=volume_text)
REDEFINE = Step(
    name="redefine_volumes.1",
    title="definition",
    do=lambda context: _define(context, "has"),
    undo=lambda context: _define(context, "had"),
    remains=_definition_text,
)
OFF_HOST = Step(name="detach_volume.1", title="data volume", do=_take, undo=_return, remains=_gone_text)
RECORD_TAKEN = Step(
    name="vm_volumes_taken.1",
    title="record that the VM does not have it",
    do=_record_taken,
    no_undo_reason="the steps before it give it back",
)


def _before(context: Context) -> Volume:
    """The volume that gets other limits, with those that it had."""
    return Volume.from_fields(context.inputs["before"])


def not_limited(context: Context) -> None:
    """In the database."""
    before = _before(context)
    as_before(context)
    with context.begin() as tx:
        tx.volumes.limit(before.id, before.max_bytes_per_s, before.max_iops)
        vm = tx.vms.find_id(context.subject)
        if vm is not None:
            tx.vms.set_spec(vm.id, limited(vm.spec, (before,)))


def _limit(context: Context) -> None:
    plug(context, context.known_vm())


def _limit_back(context: Context) -> None:
    vm = context.known_vm()
    plug(context, replace(vm, spec=limited(vm.spec, (_before(context),))))


LIMITING = Step(
    name="volume_limiting.1", title="check the state", do=lambda context: _before(context).name, undo=not_limited
)
LIMIT = Step(name="limit_volume.1", title="limits", do=_limit, undo=_limit_back, remains=_definition_text)


def _grow(context: Context) -> str:
    vm, file, size_bytes = context.inputs.get("had_by"), context.text("file"), context.number("size")
    by = vm if isinstance(vm, str) else None
    context.perform(GrowDataVolume(volume=file, size_bytes=size_bytes, vm=by))
    return show_size(size_bytes)


def not_grown(context: Context) -> None:
    """In the database; of its file that is not known once it was abandoned."""
    with context.begin() as tx:
        tx.volumes.resize(context.text("volume_id"), context.number("size_before"), None)


GROWING = Step(name="volume_growing.1", title="claim the disk", do=lambda context: context.text("file"), undo=not_grown)
GROW = Step(
    name="grow_volume.1",
    title="make it larger",
    do=_grow,
    no_undo_reason=NEVER_SHRINKS,
    remains=lambda context: (f"data volume {context.text('file')} on host {context.host_name}",),
)
