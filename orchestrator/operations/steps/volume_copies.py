# SPDX-License-Identifier: Apache-2.0
"""Copies of data volumes: snapshots, volumes that are made of them, and what is put back. An operation keeps the volume
that it makes in its inputs (``made``), with the file that is copied (``of``)."""

from __future__ import annotations

from orchestrator.core.actions.volumes import CopyDataVolume, DeleteDataVolume, ReplaceDataVolume
from orchestrator.core.units import show_size
from orchestrator.core.vms.disk_snapshot import quiesced_of
from orchestrator.core.vms.volume import Volume
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step
from orchestrator.operations.steps.disk_snapshots import copied, how_quiet


def made_of(context: Context) -> Volume:
    return Volume.from_fields(context.inputs["made"])


def _name(context: Context) -> str:
    return made_of(context).name


def forget(context: Context) -> None:
    """Nothing of the copy is left on the host. Gone already is fine."""
    with context.begin() as tx:
        tx.volumes.remove(made_of(context).id)


def _copied(context: Context) -> str | None:
    """Whether file systems were frozen."""
    made = made_of(context)
    copy = CopyDataVolume(volume=made.file, of=context.text("of"), size_bytes=made.size_bytes)
    return quiesced_of(copied(context, copy).quiesced)


def _copy(context: Context) -> str:
    _copied(context)
    return show_size(made_of(context).size_bytes)


def _copy_and_keep(context: Context) -> str:
    made, quiesced = made_of(context), _copied(context)
    context.write_at_end(lambda tx: tx.volumes.made(made.id, quiesced))
    size = show_size(made.size_bytes)
    return size if quiesced is None else f"{size}, {how_quiet(quiesced)}"


def drop(context: Context) -> None:
    context.perform(DeleteDataVolume(volume=made_of(context).file))


def _replace(context: Context) -> str:
    made, file = made_of(context), context.text("replaces")
    put = ReplaceDataVolume(volume=file, of=context.text("of"), copy=made.file, size_bytes=made.size_bytes)
    copied(context, put)
    context.write_at_end(lambda tx: tx.volumes.remove(made.id))
    return show_size(made.size_bytes)


def file_text(context: Context) -> tuple[str, ...]:
    return (f"data volume {made_of(context).file} on host {context.host_name}",)


def _replaced_text(context: Context) -> tuple[str, ...]:
    file = context.text("replaces")
    return (f"data volume {file} on host {context.host_name}: as it was, or as the snapshot",)


CLAIMED = Step(name="volume_copy_claimed.1", title="claim the disk", do=_name, undo=forget)
COPY = Step(name="copy_volume.1", title="copy the volume", do=_copy_and_keep, undo=drop, remains=file_text)
COPY_BACK = Step(name="copy_volume_back.1", title="copy the snapshot", do=_copy, undo=drop, remains=file_text)
COPIED = Step(name="volume_copied.1", title="go on to the end", do=_name, undo=lambda _: None)
"""From here it is not cancelled: the volume may be replaced."""
REPLACE = Step(
    name="replace_volume.1",
    title="put it in the volume's place",
    do=_replace,
    no_undo_reason="what was on it before is gone",
    remains=_replaced_text,
)
