# SPDX-License-Identifier: Apache-2.0
"""Which ranges networks that are joined may have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.core.errors import Conflict
from orchestrator.core.overlay import NetworkPeer, OvnNetwork, ProviderPlace, WayOut
from orchestrator.core.peering import check_apart, check_grown, check_routes_fit
from orchestrator.core.vms.network import Network

OUTSIDE = ProviderPlace(physical="physnet1", vlan=None, gateway="192.0.2.1", first="192.0.2.9", last="192.0.2.20")


def _network(name: str, subnet: str, *peers: str, out: WayOut | None = None) -> Network:
    joined = tuple(NetworkPeer(network=peer, id=f"id {peer}", state="joined") for peer in peers)
    return Network(name=name, overlay=OvnNetwork(id=f"id {name}", subnets=(subnet,), peers=joined, out=out))


def _refused(*networks: Network) -> str:
    """Why the first two are not joined."""
    known = {network.name: network for network in networks}
    with pytest.raises(Conflict) as refused:
        check_apart(networks[0], networks[1], known.get)
    assert refused.value.code == "network.peer_overlaps"
    return refused.value.message


def test_what_overlaps_the_provider_network_that_a_peer_leads_out_through_is_refused() -> None:
    outside = Network(name="outside", overlay=OvnNetwork(id="out", subnets=("192.0.2.0/24",), provider=OUTSIDE))
    blue = _network("default.blue", "10.0.0.0/24", out=WayOut(network="outside", address="192.0.2.9"))
    red = _network("research.red", "192.0.2.128/25")
    for pair in ((blue, red), (red, blue)):
        message = _refused(*pair, outside)
        assert "192.0.2.128/25 of network red overlaps 192.0.2.0/24 of outside" in message
    apart = _network("research.red", "198.51.100.0/24")
    check_apart(blue, apart, {"outside": outside}.get)


def test_only_what_gets_routes_of_both_is_asked_and_no_range_of_a_third_tenant_is_told() -> None:
    own, other = _network("a.own", "10.0.0.0/24"), _network("b.net", "10.1.0.0/24", "c.net")
    third = _network("c.net", "10.0.0.128/25", "b.net", "d.net")
    fourth = _network("d.net", "10.7.0.0/24", "c.net")
    message = _refused(own, other, third, fourth)
    assert "10.0.0.0/24 of network own overlaps what net is joined with" in message
    assert "10.0.0.128" not in message
    of_own_tenant = _network("a.more", "10.1.0.0/25", "a.own")
    assert "10.1.0.0/25 of network more" in _refused(_network("a.own", "10.0.0.0/24", "a.more"), other, of_own_tenant)
    far = _network("a.own", "10.7.0.128/25")
    check_apart(far, other, {known.name: known for known in (far, other, third, fourth)}.get)


def test_a_network_that_is_joined_with_another_tenants_gets_no_more_subnets() -> None:
    red, blue = _network("red.net", "10.0.0.0/24", "blue.net"), _network("blue.net", "10.1.0.0/24", "red.net")
    known = {network.name: network for network in (red, blue)}
    assert red.overlay is not None
    grown = replace(red, overlay=replace(red.overlay, subnets=("10.0.0.0/24", "8.8.0.0/16")))
    check_grown(red, replace(red, overlay=replace(red.overlay, mtu=1300)), known.get)
    with pytest.raises(Conflict) as refused:
        check_grown(red, grown, known.get)
    assert refused.value.code == "network.joined"
    assert "--leave blue/net" in (refused.value.hint or "")


def test_no_network_leads_to_more_than_its_guests_can_be_told_of() -> None:
    """31 ways to a /24 are 248 bytes, of 255."""
    far = [_wide(number) for number in range(4)]
    three, four = (_network("red.own", "10.0.0.0/24", *(each.name for each in far[:count])) for count in (3, 4))
    find = {three.name: three, **{each.name: each for each in far}}.get
    check_routes_fit(three, find)
    assert three.overlay is not None
    assert four.overlay is not None
    check_routes_fit(
        replace(four, overlay=replace(four.overlay, out=WayOut(network="outside", address="192.0.2.9"))), find
    )
    seven, eight = (("10.0.0.0/24", *(f"10.8.{number}.0/24" for number in range(count))) for count in (7, 8))
    check_grown(three, replace(three, overlay=replace(three.overlay, subnets=seven)), find)
    grown = replace(three, overlay=replace(three.overlay, subnets=eight))
    with pytest.raises(Conflict, match="cannot be told the way to 33 subnets"):
        check_routes_fit(four, find)
    with pytest.raises(Conflict, match="cannot be told the way to 33 subnets"):
        check_grown(three, grown, find)


def _wide(number: int) -> Network:
    subnets = tuple(f"10.{number + 1}.{subnet}.0/24" for subnet in range(8))
    network = _network(f"red.n{number}", subnets[0], "red.own")
    assert network.overlay is not None
    return replace(network, overlay=replace(network.overlay, subnets=subnets))
