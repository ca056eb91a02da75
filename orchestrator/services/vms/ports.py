# SPDX-License-Identifier: Apache-2.0
"""Which addresses VMs and their new cards have on networks of kind ovn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Final

from orchestrator.core.domain_xml.interface import mac_address
from orchestrator.core.errors import Conflict, InvalidInput, NoCapacity
from orchestrator.core.overlay import OvnNetwork, Port, WayOut, candidates, check_address, of_family
from orchestrator.core.provider_networks import addresses_of
from orchestrator.core.vms.network import Network, short_name
from orchestrator.core.vms.vm import Vm
from orchestrator.services.begin import conversions
from orchestrator.store.records import ClaimLost
from orchestrator.store.transaction import Transaction

_TRIED: Final = 64
"""Addresses that are asked about at once."""
_FREE_WHEN: Final = (
    "they are free once OVN has let go, mostly within a minute; "
    "an operator sees more with 'vgpuctl network driver check'"
)
_GIVEN_BACK: Final = (4, 32)
"""Addresses of a provider network that a tenant may give back before OVN is compared, least and most: a quarter of all
between. They are nobody's until then."""


def with_ports(tx: Transaction, vm: Vm, wanted: Mapping[str, str]) -> Vm:
    """The VM with free addresses for each card there. ``wanted``: those that were chosen, by what its tenant calls the
    network, with a comma between IPv4 and IPv6. Nothing is taken yet (store/networks.py).

    :raises InvalidInput: ``network.address_invalid``; :raises Conflict: ``network.address_taken``,
        ``network.converting``; :raises NoCapacity: ``network.full``"""
    networks = [(card, network) for card, network in enumerate(map(tx.networks.find, vm.spec.networks))]
    overlays = {network.short: (card, network, network.overlay) for card, network in networks
                if network is not None and network.overlay is not None}  # fmt: skip
    for name in wanted:
        if name not in overlays:
            hint = "a VM's address is chosen on networks of kind ovn: 'vgpuctl network list' has the kinds"
            raise InvalidInput("network.address_invalid", f"the VM has no address of its own on {name[:63]}", hint=hint)
    places = overlays.items()
    ports = tuple(port for name, place in places for port in free_ports(tx, vm, *place, wanted.get(name)))
    return replace(vm, ports=ports)


def check_converted(tx: Transaction, network: Network) -> None:
    """That its conversion is over: what comes to it meanwhile could not be taken back with it.

    :raises Conflict: ``network.converting``"""
    for operation in conversions(tx):
        if operation.subject == network.name:
            raise Conflict(
                "network.converting",
                f"network {network.short} is not of kind ovn on its hosts yet",
                hint=f"once that is over: 'vgpuctl operation show {operation.id}' tells how far it is",
            )


def is_as_planned(tx: Transaction, vm: Vm) -> bool:
    """Whether its networks are still there, those of kind ovn alone where it has addresses."""
    own, networks = {port.network for port in vm.ports}, map(tx.networks.find, vm.spec.networks)
    return all(network is not None and (network.overlay is not None) == (network.name in own) for network in networks)


def check_addresses(vm: Vm, wanted: Mapping[str, str]) -> bool:
    """Whether a VM that is there has these."""
    has = {(short_name(port.network), port.address) for port in vm.ports}
    return has.issuperset((name, address) for name, several in wanted.items() for address in several.split(","))


def free_ports(
    tx: Transaction, vm: Vm, card: int, network: Network, overlay: OvnNetwork, wanted: str | None
) -> tuple[Port, ...]:
    """Of that card, one of each family that the network has. Nothing is taken yet.

    :raises InvalidInput: ``network.address_invalid``; :raises Conflict: ``network.address_taken``,
        ``network.converting``, ``network.given_back``; :raises NoCapacity: ``network.full``"""
    check_converted(tx, network)
    check_given_back(tx, network, vm.spec.tenant)
    chosen = [
        _chosen(tx, network, overlay, text, vm.spec.tenant)
        for text in (wanted.split(",") if wanted is not None else ())
    ]
    ports = []
    for version in (4, 6):
        own, subnets = of_family(version, chosen), of_family(version, overlay.subnets)
        if len(own) > 1:
            hint = "a card has one of IPv4 and one of IPv6; another card is on another network"
            raise InvalidInput("network.address_invalid", f"{' and '.join(own)} on one card", hint=hint)
        if subnets:
            address = own[0] if own else _free(tx, vm, card, network, overlay, subnets)
            ports.append(Port(network=network.name, address=address))
    return tuple(ports)


def _chosen(tx: Transaction, network: Network, overlay: OvnNetwork, wanted: str, tenant: str) -> str:
    """:raises InvalidInput: ``network.address_invalid``; :raises Conflict: ``network.address_taken``"""
    address = check_address(wanted, overlay.subnets)
    if overlay.provider is not None and address not in overlay.provider:
        hint = f"one of {overlay.provider.first} to {overlay.provider.last}"
        raise InvalidInput("network.address_invalid", f"{address} can be no VM's there", hint=hint)
    check_nobodys(tx, network, address, tenant)
    return address


def _free(tx: Transaction, vm: Vm, card: int, network: Network, overlay: OvnNetwork, subnets: tuple[str, ...]) -> str:
    """:raises NoCapacity: ``network.full``"""
    provider = overlay.provider
    own = candidates(subnets, vm.id, card) if provider is None else addresses_of(provider, f"{vm.id} {card}")
    free = free_address(tx, network.name, own)
    if free is not None:
        return free
    raise NoCapacity(
        "network.full", f"every address of network {network.short} is taken",
        hint="delete a VM there, or take another network; what was given back is free within a minute",
    )  # fmt: skip


def free_address(tx: Transaction, network: str, wanted: Iterator[str]) -> str | None:
    """The first of these that nobody has on that network; None: somebody has each."""
    while some := tuple(islice(wanted, _TRIED)):
        taken = tx.networks.taken(network, some)
        free = next((address for address in some if address not in taken), None)
        if free is not None:
            return free
    return None


def check_nobodys(tx: Transaction, network: Network, address: str, tenant: str) -> None:
    """The tenant is told whose it is where it is its own. :raises Conflict: ``network.address_taken``"""
    if tx.networks.taken(network.name, (address,)):
        raise _taken(address, f"{_whose(tx, network, address, tenant)} on {network.short}")


def _whose(tx: Transaction, network: Network, address: str, tenant: str) -> str:
    holder = tx.networks.holder(network.name, address)
    vm = None if holder is None else tx.vms.find_id(holder)
    out = WayOut(network=network.name, address=address)
    way = next((each for each in tx.networks.list() if each.overlay is not None and each.overlay.out == out), None)
    floating = next((each for each in tx.floating_addresses.list() if each.address == address), None)
    if vm is not None:
        return f"VM {vm.spec.name}'s" if vm.spec.tenant == tenant else "somebody else's"
    if way is not None:
        return f"that of the way out of network {way.short}" if way.tenant == tenant else "somebody else's"
    if floating is not None:
        return "a floating address of the tenant's" if floating.tenant == tenant else "somebody else's"
    return "nobody's any more, and not free yet"


@contextmanager
def taking(address: str) -> Iterator[None]:
    """:raises Conflict: ``network.address_taken``: another was faster"""
    try:
        yield
    except ClaimLost as error:
        raise _taken(address, "somebody else's since just now") from error


def check_given_back(tx: Transaction, network: Network, tenant: str) -> None:
    """That the tenant does not use a provider network up by what it gives back.

    :raises Conflict: ``network.given_back``"""
    provider = None if network.overlay is None else network.overlay.provider
    if provider is None:
        return
    least, most = _GIVEN_BACK
    count = tx.networks.given_back(network.name, tenant)
    if count >= max(least, min(provider.size // 4, most)):
        message = f"tenant {tenant} gave back {count} addresses of network {network.short} just now"
        raise Conflict("network.given_back", message, hint=_FREE_WHEN)


def check_mac(tx: Transaction, vm: Vm, network: Network, card: int) -> None:
    """That no other card there has the hardware address of that card: it follows from the VM's id, which stays.

    :raises Conflict: ``network.mac_taken``"""
    mac = mac_address(vm.id, card)
    if tx.networks.has_mac(network.name, mac):
        words = f"another VM on network {network.short} has the hardware address of VM {vm.spec.name}'s card, {mac}"
        hint = f"once deleted and made anew VM {vm.spec.name} has another"
        raise Conflict("network.mac_taken", words, hint=hint)


def _taken(address: str, whose: str) -> Conflict:
    hint = "choose another, or name none and get a free one; what was given back is free within a minute"
    return Conflict("network.address_taken", f"{address} is {whose}", hint=hint)
