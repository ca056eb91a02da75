# SPDX-License-Identifier: Apache-2.0
"""Steps that cut a host's GPUs as a layout says, and give them back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from orchestrator.core.actions.host_actions import CreateGpuInstance, DestroyGpuInstance, HostAction, SetMigMode
from orchestrator.core.errors import Bug, Unknown
from orchestrator.core.gpu.device import InstancePlace
from orchestrator.core.hosts.mig_layout import KEEPER, MigLayout, difference
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step
from orchestrator.store.transaction import Transaction


def actions(before: MigLayout, after: MigLayout) -> Iterator[HostAction]:
    """From one layout of a GPU to another: what stays in its place is not touched."""
    for place in before.instances:
        if place not in after.instances:
            yield DestroyGpuInstance(vm=KEEPER, gpu=after.gpu, start=place.start)
    yield SetMigMode(gpu=after.gpu, on=after.on)
    for place in after.instances:
        yield CreateGpuInstance(vm=KEEPER, gpu=after.gpu, profile=place.profile, start=place.start)


@dataclass(frozen=True)
class _Change:
    before: MigLayout
    """As it was kept, in the mode that the GPU was in."""
    kept: bool
    wanted: MigLayout


def _changes(context: Context) -> Iterator[_Change]:
    stored = context.inputs.get("gpus")
    if not isinstance(stored, list):
        raise Bug("operation.inputs", f"operation {context.operation_id} lacks its input gpus")
    for change in stored:
        yield _Change(_layout(change["before"]), change["kept"], _layout(change["wanted"]))


def _layout(stored: dict[str, Any]) -> MigLayout:
    return MigLayout(**{**stored, "instances": tuple(InstancePlace(**instance) for instance in stored["instances"])})


def _kept(context: Context) -> str:
    return ", ".join(change.wanted.gpu for change in _changes(context))


def _keep_as_before(context: Context) -> None:
    with context.begin() as tx:
        for change in _changes(context):
            if change.kept:
                tx.hosts.keep_layout(context.host_name, change.before)
            else:
                tx.hosts.drop_layout(context.host_name, change.before.gpu)


def _cut(context: Context) -> str:
    for change in _changes(context):
        for action in actions(change.before, change.wanted):
            context.make(_named(action), action)
    return f"{sum(len(change.wanted.instances) for change in _changes(context))} GPU instances"


def _cut_as_before(context: Context) -> None:
    """A GPU with instances that were there before keeps those, in the mode that they need."""
    for change in _changes(context):
        gpu = change.wanted.gpu
        stays = not all(context.made(_instance(gpu, place.start)) for place in change.wanted.instances)
        for action in actions(change.wanted, change.before):
            kept = stays and not isinstance(action, DestroyGpuInstance)
            if not kept and context.made(_named(action)):
                context.perform(action)


def _named(action: HostAction) -> str:
    if isinstance(action, (CreateGpuInstance, DestroyGpuInstance)):
        return _instance(action.gpu, action.start)
    return action.gpu if isinstance(action, SetMigMode) else type(action).__name__


def _instance(gpu: str, start: int) -> str:
    return f"GPU instance at slot {start} of {gpu}"


def _seen(context: Context) -> str:
    """A mode that stays pending, or an instance that the driver does not show, is no layout."""
    gpus = {gpu.address: gpu for gpu in context.observe().gpus}
    changes = tuple(_changes(context))
    for change in changes:
        gpu = gpus.get(change.wanted.gpu)
        differs = "gone" if gpu is None else difference(change.wanted, gpu)
        if differs is not None:
            raise Unknown("mig.layout_not_seen", f"GPU {change.wanted.gpu} is not as it was cut", details=differs)
    context.write_at_end(lambda tx: _drop_empty(tx, context, changes))
    return "as wanted"


def _drop_empty(tx: Transaction, context: Context, changes: tuple[_Change, ...]) -> None:
    """A GPU out of MIG mode is kept for nothing: VMs may have it."""
    for change in changes:
        if not change.wanted.on:
            tx.hosts.drop_layout(context.host_name, change.wanted.gpu)


def _forget(context: Context) -> None:
    with context.begin() as tx:
        for change in _changes(context):
            tx.hosts.drop_layout(context.host_name, change.before.gpu)


def _remains(context: Context) -> tuple[str, ...]:
    return tuple(
        f"GPU instance {place.profile} at slot {place.start} of GPU {layout.gpu} on host {context.host_name}"
        for change in _changes(context)
        for layout in (change.before, change.wanted)
        for place in layout.instances
    ) or (f"the MIG modes of {_kept(context)} on host {context.host_name}",)


KEEP = Step(name="keep_layout.1", title="keep the GPUs for it", do=_kept, undo=_keep_as_before)
CUT = Step(name="cut_gpus.1", title="MIG mode and GPU instances", do=_cut, undo=_cut_as_before, remains=_remains)
SEEN = Step(name="layout_seen.1", title="layout seen", do=_seen, no_undo_reason="it only observes")
UNCUT = Step(name="uncut_gpus.1", title="remove its GPU instances", do=_cut, undo=_cut_as_before, remains=_remains)
FORGET = Step(
    name="forget_layout.1",
    title="give the GPUs back to VMs",
    do=_forget,
    no_undo_reason="nothing is after it, and it is one transaction",
)
