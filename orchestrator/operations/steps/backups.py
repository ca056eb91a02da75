# SPDX-License-Identifier: Apache-2.0
"""Backups of VMs' disks and data volumes: a snapshot goes into its VM's repository, or comes out of one;
read, or removed there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from orchestrator.core.actions.backups import FetchBackup, FetchVolume, RemoveBackup, StoreBackup, VerifyBackup
from orchestrator.core.actions.host_actions import ActionResult
from orchestrator.core.bucket import Bucket, BucketKeys
from orchestrator.core.errors import Fatal, NotFound, VgpuctlError
from orchestrator.core.units import show_size
from orchestrator.core.vms.backup import BackedUpVolume, Backup, repository_password
from orchestrator.core.vms.image import Image
from orchestrator.core.vms.vm import Vm
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step
from orchestrator.operations.steps import disk_snapshots
from orchestrator.operations.steps.disk_snapshots import copied, copies_of, file_of
from orchestrator.operations.steps.volume_copies import drop, file_text, made_of
from orchestrator.store.backups import keys_id, secret_id
from orchestrator.store.transaction import Transaction

_NEVER_OPENED: Final = frozenset({
    "backup.no_target", "backup.no_restic", "backup.password", "backup.no_bucket", "backup.s3_denied",
    "backup.s3_region", "backup.clock", "backup.tls", "backup.unreachable",
})  # fmt: skip
"""A bucket may have been lost in the middle. What came to be in it then nobody has asked for; the next removal takes it
away, and the VM need not wait for the storage."""
_DIGITS: Final = 16
"""Of a count of bytes; no database keeps any that a host may say."""


def _id(context: Context) -> str:
    return context.text("backup")


def _members(context: Context) -> dict[str, Any]:
    """What every action on the backup says. The password is read for each, and kept nowhere."""
    target, vm = context.text("backup_target"), context.text("of_vm")
    with context.world.store.read() as tx:
        backup, opened = tx.backups.find(_id(context)), repository_of(tx, target, vm)
    size = 0 if backup is None else backup.size_bytes
    return {**opened, "backup": _id(context), "size_bytes": size}


def repository_of(tx: Transaction, target: str, vm: str) -> dict[str, Any]:
    """What opens it."""
    password = repository_password(tx.secrets.get(secret_id(target)), vm)
    return {"target": target, "of_vm": vm, "password": password, "bucket": bucket_of(tx, target)}


def bucket_of(tx: Transaction, name: str) -> Bucket | None:
    """With its keys. None: the target is mounted."""
    target = tx.backups.target(name)
    if not target.s3:
        return None
    access_key, secret_key = tx.secrets.get(keys_id(name)).split("\n")
    keys = BucketKeys(access_key=access_key, secret_key=secret_key)
    return Bucket(url=target.s3, region=target.region, ca=target.ca, keys=keys)


def forget(context: Context) -> None:
    """Gone already is fine."""
    with context.begin() as tx:
        tx.backups.remove(_id(context))


def forget_both(context: Context) -> None:
    """It, which was being made, and the snapshot of its VM."""
    forget(context)
    disk_snapshots.forget(context)


def abandon_restore(context: Context) -> None:
    """The operator says what is on the disk."""
    disk_snapshots.forget(context)
    disk_snapshots.stopped_without_copy(context)


def _not_claimed(context: Context) -> None:
    forget(context)
    disk_snapshots.not_claimed(context)


def _store(context: Context) -> str:
    vm, members = context.known_vm(), _members(context)
    with context.world.store.read() as tx:
        most = tx.backups.target(members["target"]).max_bytes_per_s
    stored = StoreBackup(disk=vm.volume, volume=file_of(context), vm_name=vm.full_name, max_bytes_per_s=most, **members)
    parts = (
        replace(stored, volume=its.made.file, part=its.part, size_bytes=its.made.size_bytes)
        for its in copies_of(context)
    )
    added: int | None = 0
    for each in (stored, *parts):
        grown = _bytes(copied(context, each).message)
        added = None if added is None or grown is None else added + grown
    snapshot = next(its for its in vm.snapshots if its.id == context.text("snapshot_id"))
    taken_of, quiesced = snapshot.taken_of or "stopped", snapshot.quiesced
    context.write_at_end(lambda tx: tx.backups.stored(_id(context), taken_of, quiesced, added))
    return "" if added is None else f"{show_size(added)} added"


def _bytes(message: str) -> int | None:
    """That an agent says; None: it does not."""
    return int(message) if message.isdecimal() and len(message) <= _DIGITS else None


def _fetch(context: Context) -> str:
    vm, members = context.known_vm(), _members(context)
    fetched = FetchBackup(vm=vm.id, volume=file_of(context), disk_bytes=vm.spec.disk_bytes, **members)
    copied(context, fetched)
    for its in copies_of(context):
        of_part = _of_part(members, _held(context, its.part))
        copied(context, FetchVolume(volume=its.made.file, volume_bytes=its.made.size_bytes, **of_part))
    context.write_at_end(lambda tx: tx.disk_snapshots.taken(vm.id, context.text("snapshot_id"), "stopped", None))
    return show_size(members["size_bytes"])


def _volumes(context: Context) -> tuple[BackedUpVolume, ...]:
    """Data volumes that it holds. :raises NotFound: ``backup.missing``"""
    with context.world.store.read() as tx:
        backup = tx.backups.find(_id(context))
    if backup is None:
        raise NotFound("backup.missing", f"there is no backup {_id(context)} any more", hint="choose another one")
    return backup.stored_volumes


def _held(context: Context, part: str) -> BackedUpVolume:
    return next(volume for volume in _volumes(context) if volume.part == part)


def _of_part(members: Mapping[str, Any], volume: BackedUpVolume) -> dict[str, Any]:
    return {**members, "part": volume.part, "size_bytes": volume.size_bytes}


def _fetch_volume(context: Context) -> str:
    made, volume = made_of(context), _held(context, context.text("part"))
    of_part = _of_part(_members(context), volume)
    copied(context, FetchVolume(volume=made.file, volume_bytes=made.size_bytes, **of_part))
    context.write_at_end(lambda tx: tx.volumes.made(made.id, None))
    return show_size(volume.size_bytes)


def fetched_disk(vm: Vm, image: Image, backup: Backup, opened: Mapping[str, Any]) -> FetchBackup:
    """The VM's disk as what a backup holds. ``opened``: its repository, as :func:`repository_of` has it."""
    return FetchBackup(
        vm=vm.id, volume=vm.volume, disk_bytes=vm.spec.disk_bytes, image=image.file, backup=backup.id,
        size_bytes=backup.size_bytes, **opened,
    )  # fmt: skip


def fetch_disk(context: Context) -> None:
    """Of a VM that is made of one. :raises NotFound: ``backup.missing``"""
    target, vm = context.text("backup_target"), context.text("of_vm")
    with context.world.store.read() as tx:
        backup, opened = tx.backups.find(_id(context)), repository_of(tx, target, vm)
    if backup is None:
        raise NotFound("backup.missing", f"there is no backup {_id(context)} any more", hint="choose another one")
    copied(context, fetched_disk(context.known_vm(), context.image(), backup, opened))


def _drop(context: Context) -> str:
    """The VM is stopped again, also where somebody had to have it tried again."""
    context.write_at_end(lambda tx: tx.vms.set_state(context.subject, "stopped", operation=context.operation_id))
    return disk_snapshots.delete(context)


def _verify(context: Context) -> str:
    members = _members(context)
    of_volumes = [_of_part(members, volume) for volume in _volumes(context)]
    for each in (members, *of_volumes):
        copied(context, VerifyBackup(**each))
    context.write_at_end(lambda tx: tx.backups.verified(_id(context), tx.time.mark() or context.world.clock.now()))
    return show_size(sum(each["size_bytes"] for each in (members, *of_volumes)))


def _give_up_verifying(context: Context) -> None:
    """restic would read on to the end, for nobody; of one backup after another if a tenant wants that."""
    target, vm = context.text("backup_target"), context.text("of_vm")
    ends = VerifyBackup(target=target, of_vm=vm, password="", backup=_id(context), size_bytes=0, given_up=True)
    copied(context, ends)


def _remove_stored(context: Context) -> ActionResult:
    return copied(context, RemoveBackup(**_members(context)))


def _not_stored(context: Context) -> None:
    """What stores it is ended first. Where the repository cannot be opened nothing came to be in it."""
    disk_snapshots.take_back(context)
    try:
        _remove_stored(context)
    except VgpuctlError as error:
        if error.code not in _NEVER_OPENED:
            raise


def _remove(context: Context) -> None:
    """Of a host that did not make it and has nothing there it is not known that it is gone: each host may have mounted
    a directory of its own."""
    if not _remove_stored(context).changed:
        _check_is_its_host(context)
    context.write_at_end(lambda tx: tx.backups.remove(_id(context)))


def _check_is_its_host(context: Context) -> None:
    """:raises Fatal: ``backup.elsewhere``"""
    with context.world.store.read() as tx:
        backup, known = tx.backups.find(_id(context)), {host.name for host in tx.hosts.list()}
    if backup is None or backup.taken_of is None or backup.host == context.host_name or backup.host not in known:
        return
    hint = f"run it again when host {backup.host} is ready, or mount what it has there"
    words = f"the target of host {context.host_name} does not have what host {backup.host} put into its own"
    raise Fatal("backup.elsewhere", words, hint=hint)


def _text(context: Context) -> tuple[str, ...]:
    where = f"the repository {context.text('backup_target')}/{context.text('of_vm')} on host {context.host_name}"
    return (f"backup {_id(context)} in {where}",)


def inputs_of(backup: Backup) -> dict[str, object]:
    """Of each operation about it."""
    return {"backup": backup.id, "backup_target": backup.target, "of_vm": backup.vm}


CLAIMED = Step(name="backup_claimed.1", title="claim room for a copy", do=_id, undo=_not_claimed)
STORE = Step(name="store_backup.1", title="put it in the target", do=_store, undo=_not_stored, remains=_text)
FETCH_VOLUME = Step(
    name="fetch_volume.1", title="get it from the target", do=_fetch_volume, undo=drop, remains=file_text
)
FETCH = Step(
    name="fetch_backup.1", title="get it from the target", do=_fetch, undo=disk_snapshots.take_back,
    remains=disk_snapshots.file_text,
)  # fmt: skip
DROP = Step(
    name="drop_fetched.1", title="remove the copy", do=_drop, no_undo_reason="it is in the disk's place by then",
    remains=disk_snapshots.file_text,
)  # fmt: skip
VERIFY = Step(name="verify_backup.1", title="read all of it", do=_verify, undo=_give_up_verifying)
REMOVE = Step(
    name="remove_backup.1", title="remove it from the target", do=_remove, no_undo_reason="what was in it is gone",
    remains=_text,
)  # fmt: skip
