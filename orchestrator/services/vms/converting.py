# SPDX-License-Identifier: Apache-2.0
"""Networks of hosts that become networks over all hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from ipaddress import IPv4Network

from orchestrator.core.domain_xml.interface import mac_address
from orchestrator.core.errors import Conflict, InvalidInput, NoCapacity
from orchestrator.core.overlay import NewOvnNetwork, OvnNetwork, Port
from orchestrator.core.tenancy.quota import network_amounts
from orchestrator.core.vms.network import Network, dhcp_addresses
from orchestrator.core.vms.vm import Vm
from orchestrator.operations.steps.ports import no_ovn
from orchestrator.services.acting import actor
from orchestrator.services.begin import CONVERTS, held_by, new_operation, record
from orchestrator.services.messages import Started
from orchestrator.services.tenancy.quotas import more_within_quota, within_quota
from orchestrator.services.vm_checks import check_idle, check_state
from orchestrator.services.vms.network_cards import NetworkCards, check_in_ovn
from orchestrator.services.vms.ports import check_mac
from orchestrator.services.vms.vm_volumes import check_may_change
from orchestrator.services.ways_out import way_out
from orchestrator.store.transaction import Transaction

_SHOWN = 10
"""VMs named in a refusal."""


def convert(cards: NetworkCards, name: str, tenant: str, out: str | None = None) -> Started:
    """A NAT network of the tenant's, whose VMs are all stopped, becomes one of kind ovn: with its range, and its VMs
    with their hardware addresses and the addresses that their hosts keep for them. ``out``: provider network that
    leads out of it from then on; None: none does.

    :raises NotFound: ``network.unknown``, ``tenant.unknown``, ``network.no_provider``
    :raises InvalidInput: ``network.ovn_shared``, ``network.not_nat``
    :raises Conflict: ``network.no_ovn``, ``network.in_use`` with the VMs that run, ``vm.busy``, ``vm.suspended``,
        ``vm.adopted``, ``host.no_ovn``, ``network.subnet_overlaps``, ``network.address_taken``,
        ``network.exists``: of kind ovn, with another way out
    :raises NoCapacity: ``network.full``; :raises QuotaExceeded: ``quota.exceeded``"""
    known = cards.networks.usable(tenant, name)
    with cards.store.begin() as tx:
        network = tx.networks.get(known.name)
        if network.kind == "ovn":
            _check_leads(network, out)
            return Started(operation=None, name=name, existing=True)
        subnet = _convertible(network)
        if cards.networks.in_ovn.northbound is None:
            raise no_ovn()
        vms = [vm for vm in tx.vms.list(tenant=tenant) if network.name in vm.spec.networks]
        _check_at_rest(tx, network, vms)
        made = NewOvnNetwork(subnets=(subnet,)).checked(cards.ids.new_uuid())
        overlay = made if out is None else replace(made, out=way_out(tx, out, made, tenant))
        converted = replace(network, subnet=None, overlay=overlay)
        more_within_quota(tx, tenant, Counter(network_amounts(converted)) - Counter(network_amounts(network)))
        tx.networks.update(converted)
        if not vms:
            at = cards.clock.now()
            tx.audit.append(at=at, actor=actor(), action=CONVERTS, subject=f"{tenant}/{name}", outcome="done")
            return Started(operation=None, name=name)
        operation = new_operation(CONVERTS, converted, clock=cards.clock, ids=cards.ids)
        for vm, given in _with_addresses(tx, converted, overlay, vms):
            within_quota(tx, given, vm)
            tx.vms.update(held_by(operation, given))
        record(tx, operation, host=vms[0].host, inputs={"subnet": subnet})
    cards.engine.submit(operation.id)
    return Started(operation=operation.id, name=name)


def _check_leads(network: Network, out: str | None) -> None:
    """That one of kind ovn leads out through what is asked for. :raises Conflict: ``network.exists``"""
    way = None if network.overlay is None else network.overlay.out
    if out != (None if way is None else way.network):
        where = "and leads nowhere outside" if way is None else f"and leads outside through {way.network}"
        hint = "it keeps its way out: 'vgpuctl network create --help' says how another network gets one"
        raise Conflict("network.exists", f"network {network.short} is of kind ovn {where}", hint=hint)


def _convertible(network: Network) -> str:
    """Its subnet. :raises InvalidInput: ``network.ovn_shared``, ``network.not_nat``"""
    if network.tenant is None:
        hint = "each tenant creates one of its own: 'vgpuctl network create --help'"
        message = f"network {network.short} is the site's, and one of kind ovn is one tenant's"
        raise InvalidInput("network.ovn_shared", message, hint=hint)
    if network.subnet is None:
        hint = "create another with --kind ovn, and give its VMs a card there: 'vgpuctl network attach --help'"
        message = f"network {network.short} is a bridge of hosts: what answers there is not ours to carry over"
        raise InvalidInput("network.not_nat", message, hint=hint)
    return network.subnet


def _check_at_rest(tx: Transaction, network: Network, vms: Sequence[Vm]) -> None:
    """:raises Conflict: ``network.in_use``, ``vm.busy``, ``vm.suspended``, ``vm.adopted``, ``host.no_ovn``"""
    running = [vm.spec.name for vm in vms if vm.state != "stopped"]
    if running:
        more = f" and {len(running) - _SHOWN} more" if len(running) > _SHOWN else ""
        hint = f"stop them first: 'vgpuctl stop-vm {running[0]} --tenant {network.tenant}'"
        message = f"VMs on network {network.short} are not stopped: {', '.join(running[:_SHOWN])}{more}"
        raise Conflict("network.in_use", message, hint=hint)
    for vm in vms:
        check_may_change(vm)
        check_state(vm, "stopped")
        check_idle(tx, vm)
        check_in_ovn(tx, vm)


def _with_addresses(
    tx: Transaction, network: Network, overlay: OvnNetwork, vms: Sequence[Vm]
) -> Iterator[tuple[Vm, Vm]]:
    """Each before and after, with the address that its host keeps for it: the first that follows from its hardware
    address and that no VM before it has.

    :raises NoCapacity: ``network.full``; :raises Conflict: ``network.mac_taken``"""
    subnet, given = IPv4Network(overlay.subnets[0]), set[str]()
    for vm in sorted(vms, key=lambda vm: (vm.created_at, vm.id)):
        card = vm.spec.networks.index(network.name)
        check_mac(tx, vm, network, card)
        mac = mac_address(vm.id, card)
        own = (each for each in dhcp_addresses(str(subnet[2]), str(subnet[-2]), mac) if each not in given)
        address = next((each for each in own if not tx.networks.taken(network.name, (each,))), None)
        if address is None:
            hint = "delete a VM there first: 'vgpuctl list-vms' shows them"
            raise NoCapacity("network.full", f"network {network.short} has fewer addresses than VMs", hint=hint)
        given.add(address)
        port = Port(network=network.name, address=address)
        tx.networks.take(replace(vm, ports=(port,)))
        yield vm, replace(vm, ports=(*vm.ports, port))
