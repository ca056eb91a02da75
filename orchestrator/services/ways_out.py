# SPDX-License-Identifier: Apache-2.0
"""Provider networks as tenants use them: addresses there, and ways out of their own networks."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.core.errors import Conflict, InvalidInput, NoCapacity, NotFound
from orchestrator.core.names import near
from orchestrator.core.overlay import NewOvnNetwork, OvnNetwork, ProviderPlace, WayOut, of_family
from orchestrator.core.provider_networks import addresses_of, overlapping
from orchestrator.core.vms.network import Network
from orchestrator.services.vms.ports import check_given_back, check_nobodys, free_address, taking
from orchestrator.store.transaction import Transaction


def provider_network(tx: Transaction, name: str | None) -> tuple[Network, OvnNetwork, ProviderPlace]:
    """Of that name; None: the only one.

    :raises NotFound: ``network.no_provider``; :raises InvalidInput: ``network.which_provider``"""
    known = {
        network.name: (network, network.overlay, network.overlay.provider)
        for network in (tx.networks.list() if name is None else filter(None, [tx.networks.find(name)]))
        if network.overlay is not None and network.overlay.provider is not None
    }
    if len(known) == 1:
        return next(iter(known.values()))
    if known:
        hint = f"name one of them: {', '.join(sorted(known))}"
        raise InvalidInput("network.which_provider", f"the site has {len(known)} provider networks", hint=hint)
    which = "the site has no provider network" if name is None else f"no provider network is called {name[:63]!a}"
    hint = "an operator adds one: 'vgpuctl network add --help' says how"
    others = [network.name for network in tx.networks.list() if network.kind == "provider"]
    raise NotFound(
        "network.no_provider", which, hint=hint if name is None else near(name, others, "vgpuctl network list")
    )


def way_out(tx: Transaction, name: str, overlay: OvnNetwork, tenant: str) -> WayOut:
    """Through that provider network, with an address there that is the tenant's until the network is deleted.

    :raises NotFound: ``network.no_provider``; :raises InvalidInput: ``network.subnet_invalid``
    :raises Conflict: ``network.subnet_overlaps``, ``network.address_taken``, ``network.given_back``
    :raises NoCapacity: ``network.full``"""
    network, _, provider = provider_network(tx, name)
    check_given_back(tx, network, tenant)
    if not of_family(4, overlay.subnets):
        hint = "give it a subnet of IPv4 as well: --subnet 10.0.0.0/24"
        raise InvalidInput("network.subnet_invalid", "IPv6 does not lead outside so far", hint=hint)
    out = WayOut(network=network.name, address=_free(tx, network, provider, overlay.id))
    check_ends(tx, replace(overlay, out=out))
    with taking(out.address):
        tx.networks.claim(out.network, out.address)
    return out


def check_ends(tx: Transaction, overlay: OvnNetwork | None) -> None:
    """That a router has no address on both sides of its way out.

    :raises Conflict: ``network.subnet_overlaps``"""
    provided = None if overlay is None or overlay.out is None else tx.networks.find(overlay.out.network)
    if overlay is None or provided is None or provided.overlay is None:
        return
    both = overlapping(overlay.subnets, provided.overlay.subnets)
    if both is not None:
        message = f"{both[0]} overlaps {both[1]} of provider network {provided.name}"
        raise Conflict("network.subnet_overlaps", message, hint="choose another subnet, or another way out")


def chosen_or_free(
    tx: Transaction, network: Network, provider: ProviderPlace, address: str | None, seed: str, tenant: str
) -> str:
    """An address of a provider network that nobody has, for the tenant.

    :raises InvalidInput: ``network.address_invalid``
    :raises Conflict: ``network.address_taken``, ``network.given_back``; :raises NoCapacity: ``network.full``"""
    check_given_back(tx, network, tenant)
    if address is None:
        return _free(tx, network, provider, seed)
    if not is_in(address, provider):
        hint = f"one of {provider.first} to {provider.last}, or none for a free one"
        raise InvalidInput("network.address_invalid", f"{ascii(address)[:40]} is none of {network.name}", hint=hint)
    check_nobodys(tx, network, address, tenant)
    return address


def is_in(address: str, provider: ProviderPlace) -> bool:
    """Whether that is an IPv4 address that OVN may give away there."""
    try:
        return address in provider
    except ValueError:
        return False


def _free(tx: Transaction, network: Network, provider: ProviderPlace, seed: str) -> str:
    address = free_address(tx, network.name, addresses_of(provider, seed))
    if address is None:
        hint = (
            "'vgpuctl network address list' shows the tenant's; what was given back is free within a minute, and an "
            "operator adds another provider network"
        )
        raise NoCapacity("network.full", f"every address of provider network {network.name} is taken", hint=hint)
    return address


def check_leads_nowhere(tx: Transaction, network: Network) -> None:
    """That nobody needs one that is to go. :raises Conflict: ``network.in_use``"""
    ways = [other.short for other in tx.networks.list() if _leads_through(other, network.name)]
    addresses = [
        each.address for each in tx.floating_addresses.list() if network.name in {each.network, each.card_network}
    ]
    for what, names in (("networks lead out through", ways), ("floating addresses need", addresses)):
        if names:
            hint = "delete them first, or have their tenants do it"
            raise Conflict("network.in_use", f"{what} {network.short}: {', '.join(names[:10])}", hint=hint)


def _leads_through(network: Network, name: str) -> bool:
    out = None if network.overlay is None else network.overlay.out
    return out is not None and out.network == name


def is_seen(network: Network) -> bool:
    """Whether every tenant may know of it: ways out of networks are through provider networks, shared or not."""
    return network.shared or network.kind == "provider"


def leads_alike(known: OvnNetwork | None, wanted: NewOvnNetwork, out: str | None) -> bool:
    """Whether a network is as one that is asked for, its way out included."""
    leads = None if known is None or known.out is None else known.out.network
    return known is not None and leads == out and wanted.is_like(replace(known, out=None))
