# SPDX-License-Identifier: Apache-2.0
"""Whether one VM reaches another on a network of kind ovn, and which rules say so: OVN itself is asked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from ipaddress import ip_address, ip_network

from orchestrator.core.domain_xml.interface import mac_address
from orchestrator.core.errors import Conflict, InvalidInput
from orchestrator.core.floating_addresses import FloatingAddress, unknown_address
from orchestrator.core.hosts.bridges import is_ipv4
from orchestrator.core.northbound.groups import GroupOnNetwork, in_use, verdicts
from orchestrator.core.northbound.networks import PORT, SWITCH, Card, cards_of, router_mac
from orchestrator.core.northbound.outside import way_out_key
from orchestrator.core.northbound.rows import row_uuid
from orchestrator.core.northbound.trace import Judgement, Packet, Probe, arrives, judgements
from orchestrator.core.overlay import OvnNetwork, of_family, port_id
from orchestrator.core.ovn import OvnBinding
from orchestrator.core.peering import joined_with
from orchestrator.core.security_groups import MAX_PORT, GroupsOfCards
from orchestrator.core.vms.network import Network, short_name
from orchestrator.core.vms.vm import Vm
from orchestrator.ports.overlay import Overlay, Tracer
from orchestrator.services.vm_checks import known_vm
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction


@dataclass(frozen=True, kw_only=True)
class NetworkPath:
    """What becomes of the first packet of a connection."""

    network: str
    """What its tenant calls the network of the sender's card."""
    receiver_network: str
    """Of the receiver's: the same, or one that it is joined with."""
    sender: str
    """Address of the VM that begins."""
    receiver: str
    """Address of the other."""
    receiver_vm: str
    """Its name; of a floating address that of the VM which has it."""
    obstacles: tuple[str, ...]
    """What keeps it from arriving, whatever the rules say, for people."""
    arrives: bool
    judgements: tuple[Judgement, ...]
    """Of the sender's groups, then of the receiver's, as far as it came."""


@dataclass(frozen=True, kw_only=True)
class NetworkPathService:
    """``tracer``, ``overlay`` None: the site has no OVN."""

    store: Store
    tracer: Tracer | None
    overlay: Overlay | None

    def explain(
        self, tenant: str, sender: str, receiver: str, protocol: Probe, port: int | None, *, ipv6: bool = False
    ) -> NetworkPath:
        """``sender``, ``receiver``: names of VMs of the tenant, the latter also a floating address of it; ``port``: of
        the receiver, of TCP and UDP. ``ipv6``: by those addresses, else by IPv4 where both have one.

        :raises InvalidInput: ``network.port_missing``, ``network.same_vm``
        :raises NotFound: ``vm.unknown``, ``tenant.unknown``, ``address.unknown``
        :raises Conflict: ``vm.not_running``, ``network.not_together``, ``ovn.no_trace``, ``address.leads_nowhere``
        :raises Retryable: ``ovn.unreachable``, ``ovn.busy``"""
        if (protocol == "icmp") != (port is None) or not 1 <= (port or 1) <= MAX_PORT:
            hint = f"give a port of 1 to {MAX_PORT}, or --protocol icmp without one"
            raise InvalidInput("network.port_missing", "TCP and UDP have a port, and ICMP has none", hint=hint)
        with self.store.read() as tx:
            met = _met_at(tx, tenant, sender, receiver)
            groups = () if met is None else _groups(tx, tenant, met)
        if self.tracer is None or self.overlay is None or met is None or met.network.overlay is None:
            raise Conflict(
                "network.not_together",
                f"{sender} and {receiver} are on no network of kind ovn together, nor on two that are joined",
                hint="'vgpuctl network show NAME' has the VMs on a network",
            )  # fmt: skip
        _check_run(met.vms)
        network, source, target = met.network, met.source, met.target
        ends_at = _addresses(source, target, (6,) if ipv6 else (4, 6) if met.by is None else (4,))
        if ends_at is None or (ipv6 and met.by is not None):
            raise Conflict(
                "network.not_together", f"{sender} and {receiver} have no such addresses on network {network.short}",
                hint=f"'vgpuctl show-vm {sender} --tenant {tenant}' shows them; leave --ipv6 out for the others",
            )  # fmt: skip
        sent = ends_at[0], met.by or ends_at[1]
        is_beside = met.to == network.name and _are_beside(met.network.overlay, sent)
        next_mac = met.router_mac or (_mac(target) if is_beside else router_mac(met.network.overlay.id))
        packet = Packet(
            port=port_id(source.vm, source.number), macs=(_mac(source), next_mac), addresses=sent,
            protocol=protocol, to_port=port,
        )  # fmt: skip
        trace = _traced(self.tracer, str(row_uuid(SWITCH, met.network.overlay.id)), packet, met)
        ends = (met.vms[0], source), (met.vms[1], target)
        bindings = self.overlay.bindings(port_id(card.vm, card.number) for _, card in ends)
        obstacles = tuple(
            filter(None, (_obstacle(vm, bindings.get(port_id(card.vm, card.number))) for vm, card in ends))
        )
        return NetworkPath(
            network=network.short, receiver_network=short_name(met.to), sender=ends_at[0], receiver=ends_at[1],
            receiver_vm=met.vms[1].spec.name, obstacles=obstacles,
            arrives=not obstacles and arrives(trace, port_id(target.vm, target.number)),
            judgements=judgements(trace, verdicts(self.store.site, groups)),
        )  # fmt: skip


def _traced(tracer: Tracer, switch: str, packet: Packet, met: _Met) -> str:
    """Where it comes to a provider network and no farther, from there on as well: ovn-trace does not wait until a
    router has asked who has an address (ARP)."""
    trace, outside = tracer.trace(switch, str(packet)), met.outside
    if outside is None or f'inport="{outside.port}"' not in trace:
        return trace
    if arrives(trace, port_id(met.target.vm, met.target.number)):
        return trace
    beyond = replace(packet, port=outside.port, macs=outside.macs, addresses=outside.addresses)
    return trace + tracer.trace(outside.switch, str(beyond))


def _check_run(vms: Iterable[Vm]) -> None:
    for vm in vms:
        if vm.state not in {"running", "moving"}:
            hint = f"'vgpuctl start-vm {vm.spec.name} --tenant {vm.spec.tenant}' starts one that is stopped"
            raise Conflict("vm.not_running", f"VM {vm.spec.name} is {vm.state}", hint=hint)


def _obstacle(vm: Vm, binding: OvnBinding | None) -> str | None:
    """Why nothing passes its card, whatever the rules say."""
    name = vm.spec.name
    if binding is None:
        return f"OVN has not carried the card of {name} over to hosts yet"
    if binding.chassis is None:
        return f"no host has the card of {name}: OVN does not know {vm.host}, or is not at work there"
    return None if binding.up else f"{binding.chassis} has not set the card of {name} up yet"


@dataclass(frozen=True, kw_only=True)
class _Outside:
    """On a provider network, between the routers of two networks."""

    switch: str
    port: str
    """Of the sender's router there."""
    macs: tuple[str, str]
    addresses: tuple[str, str]


@dataclass(frozen=True)
class _Met:
    """Where two VMs meet."""

    vms: tuple[Vm, Vm]
    network: Network
    """Of the sender's card."""
    source: Card
    to: str
    """Name on hosts of the network of the receiver's card."""
    target: Card
    by: str | None = None
    """The floating address that is asked for."""
    outside: _Outside | None = None
    """Where it goes from one router to another."""
    router_mac: str | None = None
    """Of the receiver's router, where the sender is on the provider network itself."""


def _met_at(tx: Transaction, tenant: str, sender: str, receiver: str) -> _Met | None:
    """:raises NotFound: ``vm.unknown``, ``tenant.unknown``, ``address.unknown``
    :raises Conflict: ``address.leads_nowhere``; :raises InvalidInput: ``network.same_vm``"""
    source = known_vm(tx, tenant, sender)
    floating = _floating(tx, tenant, receiver) if is_ipv4(receiver) else None
    target = known_vm(tx, tenant, receiver) if floating is None else floating[1]
    if source.id == target.id:
        hint = "name two VMs; 'vgpuctl list-vms' shows them"
        raise InvalidInput("network.same_vm", f"{sender[:63]} is both ends of the connection", hint=hint)
    return _met(tx, source, target) if floating is None else _met_outside(tx, source, *floating)


def _met(tx: Transaction, sender: Vm, receiver: Vm) -> _Met | None:
    """On the first network of the sender that the other is on as well, else on the first two that are joined."""
    theirs, vms = dict(cards_of(receiver, ())), (sender, receiver)
    own = [(network, card) for name, card in cards_of(sender, ()) if (network := tx.networks.find(name)) is not None]
    ways = [(network, card, network.name) for network, card in own]
    ways += [(network, card, other.name) for network, card in own for other in joined_with(network, tx.networks.find)]
    return next((_Met(vms, network, card, to, theirs[to]) for network, card, to in ways if to in theirs), None)


def _floating(tx: Transaction, tenant: str, address: str) -> tuple[FloatingAddress, Vm]:
    """One of the tenant's, and the VM that it leads to.

    :raises NotFound: ``address.unknown``; :raises Conflict: ``address.leads_nowhere``"""
    its = {each.address: each for each in tx.floating_addresses.list(tenant)}
    if address not in its:
        raise unknown_address(address, its)
    vm = tx.vms.find_id(its[address].vm or "")
    if vm is None:
        hint = f"'vgpuctl network address attach {address} VM --tenant {tenant}' leads it to one"
        raise Conflict("address.leads_nowhere", f"floating address {address} leads to no VM", hint=hint)
    return its[address], vm


def _met_outside(tx: Transaction, sender: Vm, floating: FloatingAddress, receiver: Vm) -> _Met:
    """By the first network of the sender that is the address's own, or leads out to it.

    :raises Conflict: ``network.not_together``"""
    to = floating.card_network or ""
    for name, card in cards_of(sender, ()):
        network = tx.networks.find(name)
        if network is not None and name == floating.network:
            theirs = tx.networks.get(to).overlay
            mac = None if theirs is None else router_mac(way_out_key(theirs))
            its = dict(cards_of(receiver, ()))
            return _Met((sender, receiver), network, card, to, its[to], floating.address, router_mac=mac)
        out = None if network is None or network.overlay is None else network.overlay.out
        if network is not None and out is not None and out.network == floating.network:
            outside, its = None if name == to else _outside(tx, sender, network, floating), dict(cards_of(receiver, ()))
            return _Met((sender, receiver), network, card, to, its[to], floating.address, outside)
    raise Conflict(
        "network.not_together", f"no network of {sender.spec.name} is {floating.network} or leads out through it",
        hint=f"it needs a card on one that was created with --out {floating.network}",
    )  # fmt: skip


def _outside(tx: Transaction, sender: Vm, network: Network, floating: FloatingAddress) -> _Outside | None:
    provided, theirs = tx.networks.get(floating.network).overlay, tx.networks.get(floating.card_network or "").overlay
    own = network.overlay
    if own is None or own.out is None or theirs is None or provided is None:
        return None
    leading = tx.floating_addresses.list(floating.tenant, vm=sender.id)
    source = next((each.address for each in leading if each.card_network == network.name), own.out.address)
    return _Outside(
        switch=str(row_uuid(SWITCH, provided.id)), port=str(row_uuid(PORT, way_out_key(own))),
        macs=(router_mac(way_out_key(own)), router_mac(way_out_key(theirs))), addresses=(source, floating.address),
    )  # fmt: skip


def _groups(tx: Transaction, tenant: str, met: _Met) -> tuple[GroupOnNetwork, ...]:
    """Of both cards."""
    groups = tx.security_groups.list(tenant)
    of_cards, cards = GroupsOfCards(groups), ((met.source, met.network.name), (met.target, met.to))
    used = {(tenant, group, name) for card, name in cards for group in of_cards.of(tenant, card.vm, name)}
    return in_use(groups, used, tx.networks.find)


def _mac(card: Card) -> str:
    return mac_address(card.vm, card.number)


def _addresses(source: Card, target: Card, versions: Iterable[int]) -> tuple[str, str] | None:
    """Of the first of these families that both have; None: of none."""
    own = ((of_family(version, source.addresses), of_family(version, target.addresses)) for version in versions)
    return next(((first[0], second[0]) for first, second in own if first and second), None)


def _are_beside(overlay: OvnNetwork, addresses: Iterable[str]) -> bool:
    """In one subnet: else the router is between them."""
    both = tuple(map(ip_address, addresses))
    return any(all(address in subnet for address in both) for subnet in map(ip_network, overlay.subnets))
