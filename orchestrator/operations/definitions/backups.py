# SPDX-License-Identifier: Apache-2.0
"""Operations on backups of VMs' disks and data volumes."""

from __future__ import annotations

from orchestrator.operations.definitions.vms import CREATE_VM, DELETE_VM
from orchestrator.operations.step import Definition
from orchestrator.operations.steps import (
    backup_import,
    backups,
    boot_check,
    disk_snapshots,
    domain,
    vm_record,
    volume_copies,
)

BACK_UP_VM = Definition(
    kind="back_up_vm",
    steps=(backups.CLAIMED, disk_snapshots.TAKE, backups.STORE, disk_snapshots.DELETE, disk_snapshots.DELETE_VOLUMES),
    stuck=lambda _: None,
    abandoned=backups.forget_both,
)
"""About the VM, running or stopped, which stays as it is; it has a snapshot meanwhile, and so have its volumes."""

RESTORE_BACKUP = Definition(
    kind="restore_backup",
    steps=(
        disk_snapshots.CLAIMED,
        disk_snapshots.COPY_CLAIMED,
        backups.FETCH,
        disk_snapshots.COPY_BACK,
        disk_snapshots.COPIED,
        disk_snapshots.RESTORE,
        disk_snapshots.RESTORE_VOLUMES,
        backups.DROP,
    ),
    stuck=vm_record.mark_stuck,
    abandoned=backups.abandon_restore,
    no_return=disk_snapshots.COPIED,
)
"""About a stopped VM, which has a snapshot and a copy of it meanwhile, and what its volumes become. What fails before
its disk is replaced has changed nothing."""

FETCH_VOLUME = Definition(
    kind="fetch_volume",
    steps=(volume_copies.CLAIMED, backups.FETCH_VOLUME),
    stuck=lambda _: None,
    abandoned=volume_copies.forget,
)
"""About the volume that it makes of what a backup holds."""

VERIFY_BACKUP = Definition(
    kind="verify_backup", steps=(backups.VERIFY,), stuck=lambda _: None, abandoned=lambda _: None
)
"""About the backup, as the next."""

_STARTED = CREATE_VM.steps[: CREATE_VM.steps.index(domain.START) + 1]

BOOT_BACKUP = Definition(
    kind="boot_backup",
    leaves="absent",
    undone_leaves="absent",
    steps=(*_STARTED, boot_check.SEEN, *DELETE_VM.steps),
    stuck=vm_record.mark_stuck,
    abandoned=vm_record.forget_vm,
    no_return=boot_check.SEEN,
)
"""About a VM that is made of a backup, and is there only meanwhile."""

DELETE_BACKUP = Definition(
    kind="delete_backup",
    steps=(backups.REMOVE,),
    stuck=lambda _: None,
    abandoned=backups.forget,
    forward_only=True,
)

IMPORT_BACKUPS = Definition(
    kind="import_backups", steps=(backup_import.IMPORT,), stuck=lambda _: None, abandoned=lambda _: None
)
"""About the target."""
