# SPDX-License-Identifier: Apache-2.0
"""The operations: lists of steps and nothing else."""

from __future__ import annotations

from orchestrator.operations.definitions import backups, disk_snapshots, hosts, repairs, vms
from orchestrator.operations.step import Definition

DEFINITIONS: dict[str, Definition] = {
    definition.kind: definition
    for definition in (
        vms.CREATE_VM,
        vms.PREEMPT_FOR_VM,
        vms.CREATE_STOPPED_VM,
        vms.ADOPT_VM,
        vms.START_VM,
        vms.START_DEALLOCATED_VM,
        vms.STOP_VM,
        vms.RESTART_VM,
        vms.SUSPEND_VM,
        vms.RESUME_VM,
        vms.DISCARD_SUSPENDED_VM,
        vms.RENAME_VM,
        vms.RESIZE_VM,
        vms.RESIZE_RUNNING_VM,
        vms.MOVE_VM,
        vms.MOVE_VM_COLD,
        vms.MOVE_RUNNING_VM,
        vms.EVACUATE_VM,
        vms.EVACUATE_STOPPED_VM,
        vms.FREE_VM,
        vms.DELETE_LOST_VM,
        vms.DELETE_VM,
        vms.ATTACH_VOLUME,
        vms.DETACH_VOLUME,
        vms.GROW_VOLUME,
        vms.LIMIT_VOLUME,
        disk_snapshots.CREATE_SNAPSHOT,
        disk_snapshots.GROW_DISK,
        disk_snapshots.DELETE_SNAPSHOT,
        disk_snapshots.RESTORE_SNAPSHOT,
        disk_snapshots.CREATE_IMAGE,
        disk_snapshots.CREATE_VOLUME_SNAPSHOT,
        disk_snapshots.RESTORE_VOLUME_SNAPSHOT,
        disk_snapshots.COPY_VOLUME,
        backups.BACK_UP_VM,
        backups.RESTORE_BACKUP,
        backups.VERIFY_BACKUP,
        backups.DELETE_BACKUP,
        backups.IMPORT_BACKUPS,
        vms.ATTACH_NETWORK,
        vms.DETACH_NETWORK,
        vms.CONVERT_NETWORK,
        vms.DELETE_VOLUME,
        vms.CREATE_POOL,
        vms.DELETE_POOL,
        vms.PROVISION_VM,
        hosts.ADD_HOST,
        hosts.REMOVE_HOST,
        hosts.UPGRADE_AGENT,
        hosts.PROVISION_HOST,
        hosts.UPGRADE_DRIVER,
        hosts.FENCE_HOST,
        hosts.GIVE_UP_VMS,
        hosts.APPLY_MIG,
        hosts.RELEASE_MIG,
        hosts.ACCEPT_GPUS,
        hosts.RESET_GPU,
        repairs.CLEAN_UP,
        repairs.SETTLE_LEDGER,
        repairs.MEND_HOST,
    )
}
"""By kind."""
