# SPDX-License-Identifier: Apache-2.0
"""Networks of kind ovn whose routers lead to each other. Both tenants have said so, and no two ranges overlap, neither
theirs nor those of what one of them is joined with. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address
from typing import Final

from orchestrator.core.errors import Conflict
from orchestrator.core.overlay import NetworkPeer, OvnNetwork, of_family
from orchestrator.core.provider_networks import overlapping
from orchestrator.core.vms.network import Network

MAX_PEERS: Final = 16
"""Of one network, and as many offers of others."""
_MAX_OPTION_BYTES: Final = 255
"""Bytes of a DHCP option: its length is one (RFC 2132), and OVN begins anew at 0 beyond that."""
_LINKS: Final = {4: IPv4Address("169.254.64.0"), 6: IPv6Address("fe80::a9fe:4000")}
"""Link-local (RFC 3927, RFC 4291): never a subnet of a network, and no guest is on these links."""
Find = Callable[[str], Network | None]
"""A network by its name on hosts."""


@dataclass(frozen=True, kw_only=True)
class JoinedNetwork:
    """One that a network is joined with, as that network's router sees it."""

    overlay: OvnNetwork
    name: str
    link: int
    is_second: bool
    """Which of the link's two addresses is the router's own."""

    def addresses(self, version: int) -> tuple[str, str]:
        """The router's own of IPv4 or IPv6, and the other's."""
        first = _LINKS[version] + 4 * self.link + 1
        pair = str(first), str(first + 1)
        return (pair[1], pair[0]) if self.is_second else pair


def peer_of(overlay: OvnNetwork | None, name: str, peer_id: str) -> NetworkPeer | None:
    """What it has of that network, and not of one that had the name before."""
    peers = () if overlay is None else overlay.peers
    return next((peer for peer in peers if (peer.network, peer.id) == (name, peer_id)), None)


def joined_with(network: Network, find: Find) -> tuple[JoinedNetwork, ...]:
    """Where both sides say so."""
    if network.overlay is None:
        return ()
    joined = []
    for peer in network.overlay.peers:
        other = find(peer.network) if peer.state == "joined" else None
        theirs = None if other is None else peer_of(other.overlay, network.name, network.overlay.id)
        if other is not None and other.overlay is not None and theirs is not None and peer.id == other.overlay.id:
            second = other.name < network.name
            joined.append(JoinedNetwork(overlay=other.overlay, name=other.name, link=peer.link, is_second=second))
    return tuple(joined)


def subnets_of_peers(network: Network, find: Find) -> tuple[str, ...]:
    return tuple(subnet for joined in joined_with(network, find) for subnet in joined.overlay.subnets)


def check_apart(own: Network, other: Network, find: Find) -> None:
    """Before they are joined: each router has the ways of its own network, and to what that is joined with. ``own``: of
    the caller, who is told ranges of no third tenant.

    :raises Conflict: ``network.peer_overlaps`` with both ranges"""
    own_peers, its_peers = (
        [peer for peer in _peers(network, find) if peer.name not in {own.name, other.name}] for network in (own, other)
    )
    for first, beside, joined in ((other, [own, *own_peers], own), (own, its_peers, other)):
        for second in beside:
            both = overlapping(_subnets(first), _subnets(second))
            if both is not None:
                of_caller = second is own or second.tenant == own.tenant
                whose = f"{both[1]} of network {second.short}" if of_caller else f"what {joined.short} is joined with"
                raise _overlap(f"{both[0]} of network {first.short}", whose)
    for first, second in ((other, own), (own, other)):
        _check_beside_way_out(first, second, find)


def _check_beside_way_out(first: Network, second: Network, find: Find) -> None:
    """A route to a part of the provider network would take what is for the site's router, and answers on their way.

    :raises Conflict: ``network.peer_overlaps``"""
    out = None if second.overlay is None else second.overlay.out
    provider = None if out is None else find(out.network)
    both = None if provider is None else overlapping(_subnets(first), _subnets(provider))
    if both is not None and provider is not None:
        way = f"{both[1]} of {provider.short}, through which network {second.short} leads out"
        raise _overlap(f"{both[0]} of network {first.short}", way)


def check_grown(before: Network, after: Network, find: Find) -> None:
    """Before a network has more subnets: those that it leads to have routes to each at once.

    :raises Conflict: ``network.peer_overlaps``, ``network.too_many_peers``; ``network.joined``: another tenant has
        agreed to fewer"""
    if _subnets(before) == _subnets(after):
        return
    peers = _peers(before, find)
    for peer in peers:
        if peer.tenant != before.tenant:
            called = f"{peer.tenant}/{peer.short}"
            raise Conflict(
                "network.joined",
                f"network {before.short} is joined with {called}, whose tenant has agreed to the subnets it has",
                hint=f"'--leave {called}' first, then '--join {called}' when it has them: both say so again",
            )
    for peer in peers:
        check_apart(after, peer, find)
    for network in (after, *peers):
        check_routes_fit(network, lambda name: after if name == after.name else find(name))


def check_routes_fit(network: Network, find: Find) -> None:
    """That its guests can be told the way to all that it leads to, in one option of DHCP (RFC 3442). Where it has a way
    out they are told of its router alone; IPv6 needs no more.

    :raises Conflict: ``network.too_many_peers``"""
    overlay = network.overlay
    if overlay is None or overlay.out is not None:
        return
    own, far = of_family(4, overlay.subnets), of_family(4, subnets_of_peers(network, find))
    sizes = [5 + (IPv4Network(subnet).prefixlen + 7) // 8 for subnet in (*own, *far)]
    if own and sum(sizes) - min(sizes[: len(own)]) > _MAX_OPTION_BYTES:
        raise Conflict(
            "network.too_many_peers",
            f"guests on {network.short} cannot be told the way to {len(sizes)} subnets: DHCP has room for some 30",
            hint="leave one that is not needed: --leave; or take fewer and larger subnets",
        )


def with_peer(network: Network, peer: NetworkPeer | None, name: str) -> Network:
    """The network with that peer in the place of what it has of ``name``; None: without. What others offer takes no
    place of the tenant's own, and the oldest goes for another: it is joined by name all the same.

    :raises Conflict: ``network.too_many_peers``"""
    if network.overlay is None:
        return network
    known = [*(peer for peer in network.overlay.peers if peer.network != name), *([] if peer is None else [peer])]
    agreed = sorted((each for each in known if each.state != "offered"), key=lambda each: each.network)
    if len(agreed) > MAX_PEERS:
        message = f"network {network.short} would have {len(agreed)} peers, and none has more than {MAX_PEERS}"
        raise Conflict("network.too_many_peers", message, hint="leave one that is not needed: --leave")
    offered = [each for each in known if each.state == "offered"][-MAX_PEERS:]
    return replace(network, overlay=replace(network.overlay, peers=(*agreed, *offered)))


def free_link(networks: Iterable[Network]) -> int:
    """The first that no router of these has."""
    used = {
        peer.link for network in networks if network.overlay for peer in network.overlay.peers if peer.state == "joined"
    }
    return next(link for link in range(2 * MAX_PEERS + 2) if link not in used)


def _subnets(network: Network) -> tuple[str, ...]:
    return () if network.overlay is None else network.overlay.subnets


def _peers(network: Network, find: Find) -> list[Network]:
    peers = (find(joined.name) for joined in joined_with(network, find))
    return [peer for peer in peers if peer is not None]


def _overlap(subnet: str, other: str) -> Conflict:
    hint = "networks that are joined have ranges of their own: make one of them with another --subnet"
    return Conflict("network.peer_overlaps", f"{subnet} overlaps {other}", hint=hint)
