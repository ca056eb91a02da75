# SPDX-License-Identifier: Apache-2.0
"""A VM's own disk becomes larger. Its row has the new size from the beginning."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.core.actions.volumes import NEVER_SHRINKS, GrowDisk
from orchestrator.core.units import show_size
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step
from orchestrator.operations.steps.volume_keys import disk_key
from orchestrator.store.usage import ANY


def _grow(context: Context) -> str:
    vm, size_bytes = context.known_vm(), context.number("size")
    context.perform(GrowDisk(vm=vm.id, volume=vm.volume, size_bytes=size_bytes, keys=disk_key(context, vm)))
    return show_size(size_bytes)


def not_grown(context: Context) -> None:
    """In the database; how large the file is, is not known once it was abandoned."""
    with context.begin() as tx:
        vm, before = tx.vms.find_id(context.subject), context.number("size_before")
        if vm is not None:
            tx.disk_snapshots.claim_disk(vm, before, ANY)
            tx.vms.update(replace(vm, spec=replace(vm.spec, disk_bytes=before)))


def _remains(context: Context) -> tuple[str, ...]:
    vm, size = context.text("vm"), show_size(context.number("size"))
    settles = f"'vgpuctl vm resize-disk {vm} --size {size}' settles it"
    return (f"the disk of VM {vm} on host {context.host_name}, perhaps larger: {settles}",)


GROWING = Step(name="disk_growing.1", title="claim the disk", do=lambda context: context.text("vm"), undo=not_grown)
GROW = Step(
    name="grow_disk.1",
    title="make it larger",
    do=_grow,
    no_undo_reason=NEVER_SHRINKS,
    remains=_remains,
)
