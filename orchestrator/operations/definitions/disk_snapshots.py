# SPDX-License-Identifier: Apache-2.0
"""Operations on a VM's disk, and on snapshots of it and of data volumes. One of a volume is removed as a volume is."""

from __future__ import annotations

from orchestrator.operations.step import Definition
from orchestrator.operations.steps import disk_growth, disk_snapshots, images, vm_record, volume_copies

CREATE_SNAPSHOT = Definition(
    kind="create_snapshot",
    steps=(disk_snapshots.CLAIMED, disk_snapshots.TAKE),
    stuck=lambda _: None,
    abandoned=disk_snapshots.forget,
)
"""About the VM, running or stopped, which stays as it is; its row has the snapshot from the beginning."""

DELETE_SNAPSHOT = Definition(
    kind="delete_snapshot",
    steps=(disk_snapshots.CHECKED, disk_snapshots.DELETE, disk_snapshots.DELETE_VOLUMES),
    stuck=lambda _: None,
    abandoned=disk_snapshots.forget,
    forward_only=True,
)
"""As CREATE_SNAPSHOT; its row has the snapshot until the end."""

RESTORE_SNAPSHOT = Definition(
    kind="restore_snapshot",
    steps=(
        disk_snapshots.COPY_CLAIMED,
        disk_snapshots.COPY_BACK,
        disk_snapshots.COPIED,
        disk_snapshots.RESTORE,
        disk_snapshots.RESTORE_VOLUMES,
    ),
    stuck=vm_record.mark_stuck,
    abandoned=disk_snapshots.stopped_without_copy,
    no_return=disk_snapshots.COPIED,
)
"""About a stopped VM. Until it is copied whole nothing has changed; then it is put in the disk's place."""

CREATE_IMAGE = Definition(
    kind="create_image",
    steps=(disk_snapshots.COPY_CLAIMED, images.FLATTEN, images.ADD, images.DROP),
    stuck=lambda _: None,
    abandoned=disk_snapshots.forget_copy,
    no_return=images.ADD,
)
"""As CREATE_SNAPSHOT. The copy that becomes the image has room on the host until the server has it."""

GROW_DISK = Definition(
    kind="grow_disk",
    steps=(disk_growth.GROWING, disk_growth.GROW),
    stuck=lambda _: None,
    abandoned=disk_growth.not_grown,
    forward_only=True,
)
"""As CREATE_SNAPSHOT; its row has the new size from the beginning."""

CREATE_VOLUME_SNAPSHOT = Definition(
    kind="create_volume_snapshot",
    steps=(volume_copies.CLAIMED, volume_copies.COPY),
    stuck=lambda _: None,
    abandoned=volume_copies.forget,
)
"""About the VM that has the volume, running or stopped, or else about the volume. Either stays as it is."""

COPY_VOLUME = Definition(
    kind="copy_volume",
    steps=(volume_copies.CLAIMED, volume_copies.COPY),
    stuck=lambda _: None,
    abandoned=volume_copies.forget,
)
"""About the volume that it makes of a snapshot."""

RESTORE_VOLUME_SNAPSHOT = Definition(
    kind="restore_volume_snapshot",
    steps=(volume_copies.CLAIMED, volume_copies.COPY_BACK, volume_copies.COPIED, volume_copies.REPLACE),
    stuck=lambda _: None,
    abandoned=volume_copies.forget,
    no_return=volume_copies.COPIED,
)
"""About the stopped VM that has the volume, or else about the volume. As RESTORE_SNAPSHOT."""
