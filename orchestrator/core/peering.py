# SPDX-License-Identifier: Apache-2.0
"""Networks of kind ovn whose routers lead to each other. Both tenants have said so, and no two ranges overlap, neither
theirs nor those of what they are joined with already. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from orchestrator.core.errors import Conflict
from orchestrator.core.overlay import NetworkPeer, OvnNetwork
from orchestrator.core.vms.network import Network

MAX_PEERS: Final = 16
"""Of one network."""
_LINKS: Final = IPv4Address("169.254.64.0")
"""Link-local (RFC 3927): never a subnet of a network, and no guest is on these links."""
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

    def addresses(self) -> tuple[str, str]:
        """The router's own, and the other's."""
        first = _LINKS + 4 * self.link + 1
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


def check_apart(first: Network, second: Network, find: Find) -> None:
    """Before they are joined. :raises Conflict: ``network.peer_overlaps`` with both ranges"""
    ranges = [(subnet, network) for network in _reached((first, second), find) for subnet in _subnets(network)]
    for at, (subnet, network) in enumerate(ranges):
        for other_subnet, other in ranges[at + 1 :]:
            if network.name != other.name and IPv4Network(subnet).overlaps(IPv4Network(other_subnet)):
                raise Conflict(
                    "network.peer_overlaps",
                    f"{subnet} of {_called(network, first, second)} overlaps {other_subnet} of "
                    f"{_called(other, first, second)}",
                    hint="networks that are joined have ranges of their own: make one of them with another --subnet",
                )


def with_peer(network: Network, peer: NetworkPeer | None, name: str) -> Network:
    """The network with that peer in the place of what it has of ``name``; None: without."""
    if network.overlay is None:
        return network
    kept = [known for known in network.overlay.peers if known.network != name]
    peers = sorted((*kept, *([] if peer is None else [peer])), key=lambda joined: joined.network)
    if len(peers) > max(MAX_PEERS, len(network.overlay.peers)):
        message = f"network {network.short} would have {len(peers)} peers, and none has more than {MAX_PEERS}"
        raise Conflict("network.too_many_peers", message, hint="one that is in the middle may lead to the others")
    return replace(network, overlay=replace(network.overlay, peers=tuple(peers)))


def free_link(networks: Iterable[Network]) -> int:
    """The first that no router of these has."""
    used = {peer.link for network in networks if network.overlay for peer in network.overlay.peers}
    return next(link for link in range(2 * MAX_PEERS + 2) if link not in used)


def _subnets(network: Network) -> tuple[str, ...]:
    return () if network.overlay is None else network.overlay.subnets


def _called(network: Network, *theirs: Network) -> str:
    """What its name is to those who join; of another tenant's nothing is said."""
    named = network.name in {its.name for its in theirs}
    return f"network {network.short}" if named else "a network that is joined already"


def _reached(networks: Iterable[Network], find: Find) -> tuple[Network, ...]:
    """These, and all that they are joined with over however many."""
    reached, waiting = dict[str, Network](), list(networks)
    while waiting:
        network = waiting.pop()
        if network.name not in reached:
            reached[network.name] = network
            others = (find(joined.name) for joined in joined_with(network, find))
            waiting += [other for other in others if other is not None]
    return tuple(reached.values())
