# SPDX-License-Identifier: Apache-2.0
"""A stopped VM is given a data volume, or gives it back."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.core.actions.host_actions import (
    DefineDomain,
)
from orchestrator.core.actions.volumes import (
    AttachVolume,
    DetachVolume,
)
from orchestrator.core.vms.vm import Vm
from orchestrator.core.vms.volume import file_of, id_of, short_of
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step
from orchestrator.operations.steps.vm_record import not_started
from orchestrator.operations.steps.volume import (
    give_volumes,
    put_back,
    take_volumes_back,
    volume_text,
    volumes_before,
)
from orchestrator.store.transaction import Transaction


def _names(context: Context, key: str) -> tuple[str, ...]:
    """What the VM's volumes are called in its specification, before (``had``) or after (``has``) the operation."""
    stored = context.inputs.get(key)
    return tuple(str(one) for one in stored) if isinstance(stored, list) else ()


def with_volumes(vm: Vm, volumes: tuple[str, ...]) -> Vm:
    """The VM with these data volumes in its specification."""
    return replace(vm, spec=replace(vm.spec, volumes=volumes))


def _told(context: Context) -> str:
    return ", ".join(short_of(one) for one in _names(context, "has")) or "none"


def not_attached(context: Context) -> None:
    """The VM has what it had before, and is stopped."""
    not_started(context)
    with context.begin() as tx:
        put_back(tx, context)
        vm = tx.vms.find_id(context.subject)
        if vm is not None:
            tx.vms.set_spec(vm.id, with_volumes(vm, _names(context, "had")).spec)


def _give(context: Context) -> str:
    give_volumes(context, context.known_vm())
    return ", ".join(one.name for one in volumes_before(context))


def _give_back(context: Context) -> None:
    vm = context.vm()
    if vm is not None:
        take_volumes_back(context, vm)


def _define(context: Context, key: str) -> None:
    vm = context.known_vm()
    context.perform(DefineDomain(vm=vm.id, domain=with_volumes(vm, _names(context, key)).domain))


def _gone(context: Context) -> tuple[str, ...]:
    """Those that the VM had and shall not have any more."""
    return tuple(one for one in _names(context, "had") if one not in _names(context, "has"))


def _take(context: Context) -> str:
    for one in _gone(context):
        context.perform(DetachVolume(vm=context.subject, volume=file_of(one)))
    return ", ".join(short_of(one) for one in _gone(context))


def _return(context: Context) -> None:
    for one in _gone(context):
        context.perform(AttachVolume(vm=context.subject, volume=file_of(one)))


def _definition_text(context: Context) -> tuple[str, ...]:
    return (f"the definition of VM {context.text('vm')} on host {context.host_name}",)


def _gone_text(context: Context) -> tuple[str, ...]:
    return tuple(f"data volume {file_of(one)} on host {context.host_name}" for one in _gone(context))


def _record_taken(context: Context) -> None:
    def write(tx: Transaction) -> None:
        vm = tx.vms.find_id(context.subject)
        if vm is not None:
            tx.vms.set_spec(vm.id, with_volumes(vm, _names(context, "has")).spec)
        for one in _gone(context):
            tx.volumes.detach(id_of(one), context.subject)

    context.write_at_end(write)


GIVEN = Step(name="vm_volumes.1", title="check the state", do=_told, undo=not_attached)
TAKING = Step(
    name="vm_volumes_left.1",
    title="check the state",
    do=_told,
    undo=not_started,
)
ON_HOST = Step(name="attach_volume.1", title="data volume", do=_give, undo=_give_back, remains=volume_text)
REDEFINE = Step(
    name="redefine_volumes.1",
    title="definition",
    do=lambda context: _define(context, "has"),
    undo=lambda context: _define(context, "had"),
    remains=_definition_text,
)
OFF_HOST = Step(name="detach_volume.1", title="data volume", do=_take, undo=_return, remains=_gone_text)
RECORD_TAKEN = Step(
    name="vm_volumes_taken.1",
    title="record that the VM does not have it",
    do=_record_taken,
    no_undo_reason="the steps before it give it back",
)
