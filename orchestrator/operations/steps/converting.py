# SPDX-License-Identifier: Apache-2.0
"""A NAT network of hosts becomes one of kind ovn. In the database it is that from the transaction on in which the
operation begins, so nothing new is put on what goes. Its VMs, all of them stopped, are held until hosts have followed;
their ports are written by OVN's next comparison or by their start."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.core.actions.host_actions import DefineDomain, EnsureNetwork, RemoveNetwork
from orchestrator.core.vms.network import short_name
from orchestrator.core.vms.vm import Vm
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step


def _name(context: Context) -> str:
    return short_name(context.subject)


def _without(vm: Vm, network: str) -> Vm:
    """As it was before it had an address there."""
    return replace(vm, ports=tuple(port for port in vm.ports if port.network != network))


def _nat_again(context: Context) -> None:
    name = context.subject
    with context.begin() as tx:
        network = tx.networks.find(name)
        if network is None or network.overlay is None:
            return
        for vm in tx.vms.list(tenant=network.tenant):
            if name in vm.spec.networks:
                tx.networks.give(replace(vm, ports=tuple(port for port in vm.ports if port.network == name)))
                tx.vms.change(vm.id, ports=_without(vm, name).ports)
        out = network.overlay.out
        if out is not None:
            tx.networks.leave(out.network, out.address, network.tenant)
        tx.networks.update(replace(network, subnet=context.text("subnet"), overlay=None))


def _by_host(context: Context) -> dict[str, list[Vm]]:
    """The VMs there."""
    with context.world.store.read() as tx:
        network = tx.networks.get(context.subject)
        vms = [vm for vm in tx.vms.list(tenant=network.tenant) if network.name in vm.spec.networks]
    return {host: [vm for vm in vms if vm.host == host] for host in sorted({vm.host for vm in vms})}


def _take_away(context: Context) -> str:
    by_host = _by_host(context)
    for host, vms in by_host.items():
        with context.at(host) as at_host:
            for vm in vms:
                at_host.perform(DefineDomain(vm=vm.id, domain=vm.domain))
            at_host.perform(RemoveNetwork(name=context.subject))
    return ", ".join(by_host)


def _put_back(context: Context) -> None:
    for host, vms in _by_host(context).items():
        with context.at(host) as at_host:
            at_host.perform(EnsureNetwork(name=context.subject, subnet=context.text("subnet")))
            for vm in vms:
                at_host.perform(DefineDomain(vm=vm.id, domain=_without(vm, context.subject).domain))


def _left(context: Context) -> tuple[str, ...]:
    return (f"the NAT network {context.subject} on hosts, and definitions of VMs with cards there",)


CONVERTING = Step(name="network_converting.1", title="check the state", do=_name, undo=_nat_again)
TAKE_AWAY = Step(name="take_nat_away.1", title="hosts without its NAT", do=_take_away, undo=_put_back, remains=_left)
