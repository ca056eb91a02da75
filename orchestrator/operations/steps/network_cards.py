# SPDX-License-Identifier: Apache-2.0
"""A VM gets or loses its last network card, running or stopped."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.core.vms.network import short_name
from orchestrator.core.vms.vm import Vm
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step
from orchestrator.operations.steps.plugging import names_of, plug, record_plugged
from orchestrator.operations.steps.ports import remove_ports
from orchestrator.operations.steps.vm_record import as_before
from orchestrator.store.transaction import Transaction


def with_networks(vm: Vm, networks: tuple[str, ...]) -> Vm:
    """The VM with a card on each of these, and no others."""
    ports = tuple(port for port in vm.ports if port.network in networks)
    return replace(vm, spec=replace(vm.spec, network=networks[0], more_networks=networks[1:]), ports=ports)


def _gone(vm: Vm, networks: tuple[str, ...]) -> Vm:
    """The VM with the ports alone that it does not have any more when these are its networks."""
    return replace(vm, ports=tuple(port for port in vm.ports if port.network not in networks))


def _names(context: Context) -> str:
    return ", ".join(map(short_name, names_of(context, "has")))


def _set(tx: Transaction, context: Context, key: str) -> None:
    vm, networks = tx.vms.find_id(context.subject), names_of(context, key)
    if vm is not None:
        after = with_networks(vm, networks)
        tx.networks.give(_gone(vm, networks))
        tx.vms.change(vm.id, spec=after.spec, ports=after.ports)


def not_attached(context: Context) -> None:
    """The VM has the cards that it had before."""
    _remove_ports(context, "had")
    as_before(context)
    with context.begin() as tx:
        _set(tx, context, "had")


def _remove_ports(context: Context, key: str) -> None:
    """From OVN, before their addresses are anybody's again."""
    vm = context.vm()
    if vm is not None:
        remove_ports(context, _gone(vm, names_of(context, key)))


def _plug(context: Context, key: str) -> None:
    plug(context, with_networks(context.known_vm(), names_of(context, key)))


def _record_taken(context: Context) -> None:
    record_plugged(context)
    _remove_ports(context, "has")
    context.write_at_end(lambda tx: _set(tx, context, "has"))


def _definition_text(context: Context) -> tuple[str, ...]:
    return (f"the definition of VM {context.text('vm')} on host {context.host_name}",)


GIVEN = Step(name="vm_networks.1", title="check the state", do=_names, undo=not_attached)
TAKING = Step(name="vm_networks_left.1", title="check the state", do=_names, undo=as_before)
PLUG = Step(
    name="plug_networks.1",
    title="network card",
    do=lambda context: _plug(context, "has"),
    undo=lambda context: _plug(context, "had"),
    remains=_definition_text,
)
RECORD_TAKEN = Step(
    name="vm_networks_taken.1",
    title="record that the VM does not have it",
    do=_record_taken,
    no_undo_reason="the steps before it give it back",
)
