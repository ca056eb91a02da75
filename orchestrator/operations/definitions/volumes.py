# SPDX-License-Identifier: Apache-2.0
"""Operations on data volumes. What a VM is made or deleted with is part of its own operations."""

from __future__ import annotations

from orchestrator.operations.step import Definition
from orchestrator.operations.steps import vm_record, vm_volumes, volume

ATTACH_VOLUME = Definition(
    kind="attach_volume",
    steps=(vm_volumes.GIVEN, vm_volumes.ON_HOST, vm_volumes.REDEFINE, vm_record.STOPPED),
    stuck=vm_record.mark_stuck,
    abandoned=vm_volumes.not_attached,
)
"""About the VM, which is stopped; its specification has the volume from the beginning."""

DETACH_VOLUME = Definition(
    kind="detach_volume",
    steps=(vm_volumes.TAKING, vm_volumes.REDEFINE, vm_volumes.OFF_HOST, vm_volumes.RECORD_TAKEN),
    stuck=vm_record.mark_stuck,
    abandoned=vm_record.say_stopped,
)
"""About the VM, which is stopped; its specification has the volume until the end."""

DELETE_VOLUME = Definition(
    kind="delete_volume",
    steps=(volume.DELETING, volume.DELETE, volume.FORGET),
    stuck=lambda _: None,
    abandoned=volume.forget_volume,
    forward_only=True,
)
"""About the volume. One that no host has a file of is deleted without an operation."""
