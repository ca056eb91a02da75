# SPDX-License-Identifier: Apache-2.0
"""What a new VM's disk is a copy of: a snapshot of another VM's, or a backup."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.core.errors import Conflict, InvalidInput
from orchestrator.core.units import show_size
from orchestrator.core.vms.backup import Backup
from orchestrator.core.vms.disk_snapshot import SnapshotSource, snapshot_file
from orchestrator.core.vms.image import short_of
from orchestrator.core.vms.vm import VmSpec
from orchestrator.services.images import known_image
from orchestrator.services.messages import CreateVm
from orchestrator.services.vm_checks import known_vm
from orchestrator.services.vms.disk_snapshots import taken_snapshot
from orchestrator.services.vms.known_backups import check_finished, check_not_going, known_backup
from orchestrator.store.transaction import Transaction

DiskSource = SnapshotSource | Backup


def source_of(tx: Transaction, request: CreateVm, pool: str | None) -> DiskSource | None:
    """None: its disk is on its image alone. ``pool``: where its disk would lie.

    :raises NotFound: ``vm.unknown``, ``snapshot.unknown``, ``backup.unknown``
    :raises Conflict: ``snapshot.unfinished``, ``snapshot.in_pool``, ``snapshot.other_image``, ``backup.unfinished``,
        ``backup.in_pool``"""
    if request.from_backup is not None:
        return _backup(tx, request.tenant, request, pool)
    if request.from_snapshot is None:
        return None
    vm_name, _, name = request.from_snapshot.partition("/")
    vm = known_vm(tx, request.tenant, vm_name)
    snapshot = taken_snapshot(vm, name)
    if pool is not None:
        hint = "give '--pool none': its disk lies where the snapshot is then"
        raise Conflict("snapshot.in_pool", f"the disk of VM {request.name} would lie in a pool", hint=hint)
    if known_image(tx, request.tenant, request.image).name != vm.spec.image:
        image = short_of(vm.spec.image, request.tenant)
        words = f"snapshot {request.from_snapshot} is of a disk on image {image}"
        raise Conflict("snapshot.other_image", words, hint=f"say '--image {image}', or leave it out")
    return SnapshotSource(
        host=vm.host,
        vm=vm.id,
        disk=vm.volume,
        snapshot=snapshot_file(vm.id, snapshot.id),
        size_bytes=snapshot.size_bytes,
    )


def _backup(tx: Transaction, tenant: str, request: CreateVm, pool: str | None) -> Backup:
    backup = known_backup(tx, tenant, str(request.from_backup))
    check_finished(backup)
    if pool is not None:
        hint = "give '--pool none': its disk lies on its host's own then"
        raise Conflict("backup.in_pool", f"the disk of VM {request.name} would lie in a pool", hint=hint)
    return backup


def check_stays(tx: Transaction, source: DiskSource | None) -> None:
    """That a backup is there and is not being removed; nobody begins to until the transaction ends.

    :raises NotFound: ``backup.unknown``; :raises Conflict: ``backup.in_use``"""
    if isinstance(source, Backup):
        check_not_going(tx, known_backup(tx, source.tenant, source.id))


def is_of_another(request: CreateVm, spec: VmSpec) -> bool:
    """Whether a request for a VM that is there names another copy than its disk was made as."""
    of_backup = request.from_backup is None or (spec.from_backup or "").startswith(request.from_backup)
    return request.from_snapshot not in {None, spec.from_snapshot} or not of_backup


def sized_for(source: DiskSource | None, sized: CreateVm, asked_bytes: int) -> CreateVm:
    """``sized`` by its profile, with a disk that what it is a copy of has room in, and by the whole name of that.
    ``asked_bytes``: 0: left to the profile.

    :raises InvalidInput: ``disk.too_small``"""
    if isinstance(source, Backup):
        sized = replace(sized, from_backup=source.id)
    if source is None or sized.disk_bytes >= source.size_bytes:
        return sized
    if asked_bytes:
        what = f"snapshot {sized.from_snapshot}" if sized.from_backup is None else f"backup {sized.from_backup}"
        words = f"a disk of {show_size(asked_bytes)} is smaller than {what}"
        raise InvalidInput("disk.too_small", words, hint=f"ask for at least {show_size(source.size_bytes)}")
    return replace(sized, disk_bytes=source.size_bytes)
