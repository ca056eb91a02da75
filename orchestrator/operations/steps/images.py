# SPDX-License-Identifier: Apache-2.0
"""A base image of a snapshot: its host copies it to a file that lies on nothing, which is read, checked as any image
that is sent, and named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Final

from orchestrator.core.actions.disk_snapshots import FlattenSnapshot
from orchestrator.core.errors import QuotaExceeded
from orchestrator.core.units import MIB, show_size
from orchestrator.core.vms.disk_snapshot import find_snapshot
from orchestrator.core.vms.image import Image, NewImage, check_one_more
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step
from orchestrator.operations.steps.disk_snapshots import copied, copy_file, copy_text, drop_copy, file_of
from orchestrator.store.records import ClaimLost
from orchestrator.store.transaction import Transaction

_ADDED: Final = "added"
"""Input of an operation: the SHA-256 of the image that it has added."""
_TELL_BYTES: Final = 64 * MIB
_REPORT_S: Final = 5.0


def _flatten(context: Context) -> str:
    vm = context.known_vm()
    size = find_snapshot(vm.snapshots, context.text("snapshot"), vm.spec.name).size_bytes
    flat = FlattenSnapshot(
        vm=vm.id, disk=vm.volume, volume=copy_file(context), snapshot=file_of(context), size_bytes=size
    )
    copied(context, flat)
    return show_size(size)


def _add(context: Context) -> str:
    name = context.text("image")
    if isinstance(context.inputs.get(_ADDED), str):  # by an attempt whose end was not written down
        return name
    host, images, now = context.host(), context.world.images, context.world.clock.now()
    reading = context.world.link.read_snapshot(host, context.subject, copy_file(context), context.token(host))
    with (
        closing(reading),
        images.take(NewImage(name=name, source=_reporting(context, reading), format="qcow2"), now) as taken,
    ):
        image = taken.described
        try:
            with context.begin() as tx:
                _name_it(tx, image)
                taken.keep()
                added = {**context.inputs, _ADDED: image.sha256}
                tx.operations.put_inputs(context.operation_id, added)
        except ClaimLost as error:
            hint = f"'vgpuctl quota show {image.tenant}' shows it; 'vgpuctl image list' what can be removed"
            raise QuotaExceeded("quota.exceeded", str(error), hint=hint) from error
    context.inputs[_ADDED] = image.sha256
    return f"{name}, {show_size(image.size_bytes // MIB * MIB)}"


def _name_it(tx: Transaction, image: Image) -> None:
    """:raises ClaimLost: the tenant's quota is used up; :raises Conflict: ``image.exists``, ``image.too_many``"""
    check_one_more(image.name, tx.images.list())
    tx.images.add(image)
    tx.tenant_usage.write(within_limits=True)


def _reporting(context: Context, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """And ended, when somebody cancels."""
    clock = context.world.clock
    came, reported, reported_at = 0, 0, clock.monotonic()
    for chunk in chunks:
        yield chunk
        came += len(chunk)
        if came - reported >= _TELL_BYTES or clock.monotonic() - reported_at >= _REPORT_S:
            reported, reported_at = came, clock.monotonic()
            context.report(f"{show_size(came // MIB * MIB)} copied")
            context.pause(0.0)


def _remove(context: Context) -> None:
    """Of what was added; a VM that was made of it since keeps it."""
    name, digest = context.text("image"), context.inputs.get(_ADDED)
    if not isinstance(digest, str):
        return
    with context.begin() as tx:
        images = tx.images.list()
        if any(vm.spec.image == name for vm in tx.vms.list()):
            return
        tx.images.remove(name)
        if not any(image.sha256 == digest and image.name != name for image in images):
            context.world.images.remove(digest, "qcow2")


def _drop(context: Context) -> None:
    drop_copy(context)
    copy = context.text("copy_id")
    context.write_at_end(lambda tx: tx.disk_snapshots.remove(context.subject, copy))


FLATTEN = Step(name="flatten_snapshot.1", title="copy the snapshot", do=_flatten, undo=drop_copy, remains=copy_text)
ADD = Step(
    name="add_image.1",
    title="add the image",
    do=_add,
    undo=_remove,
    remains=lambda context: (f"image {context.text('image')}",),
)
DROP = Step(
    name="drop_copy.1",
    title="remove the copy from the host",
    do=_drop,
    no_undo_reason="the image is there",
    remains=copy_text,
)
