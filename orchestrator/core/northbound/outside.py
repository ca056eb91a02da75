# SPDX-License-Identifier: Apache-2.0
"""Which rows what leads out of a network is in OVN's northbound: ovn-nb(5). Pure.

The network's router has a port on the provider network. One of its gateways carries it; when that is lost (BFD between
them, RFC 5880) the next one does, without anybody here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Network

from orchestrator.core.floating_addresses import FloatingAddress
from orchestrator.core.northbound.networks import (
    GATEWAY,
    MAX_PRIORITY,
    NAT,
    PORT,
    ROUTE,
    ROUTER,
    ROUTER_PORT,
    RULE,
    SWITCH,
    addresses_of,
    router_mac,
)
from orchestrator.core.northbound.rows import MemberOf, OvnRow, Value, row_uuid
from orchestrator.core.overlay import OvnNetwork, ProviderPlace, WayOut, of_family
from orchestrator.core.provider_networks import KnownChassis, gateways_of
from orchestrator.core.vms.network import Network
from orchestrator.core.vms.vm import Vm


def rows_out(
    overlay: OvnNetwork, provided: Network | None, chassis: Iterable[KnownChassis], far: Iterable[str] = ()
) -> tuple[OvnRow, ...]:
    """Of a network that has a way out; ``provided``: the provider network that it goes through; ``far``: subnets of
    networks that it is joined with. They come after the rows of both."""
    if overlay.out is None or provided is None or provided.overlay is None or provided.overlay.provider is None:
        return ()
    outside, provider = provided.overlay, provided.overlay.provider
    gateways = gateways_of(chassis, provider.physical, overlay.id)
    return (*_leading_out(overlay, overlay.out, outside, provider, far), *_gateways(way_out_key(overlay), gateways))


def way_out_key(overlay: OvnNetwork) -> str:
    """Of what a network has once on its way out."""
    return f"{overlay.id}/out"


def _leading_out(
    overlay: OvnNetwork, out: WayOut, outside: OvnNetwork, provider: ProviderPlace, far: Iterable[str]
) -> Iterator[OvnRow]:
    key = way_out_key(overlay)
    port = str(row_uuid(ROUTER_PORT, key))
    address = f"{out.address}/{IPv4Network(outside.subnets[0]).prefixlen}"
    # Answers for each address behind it, and says so anew where another gateway takes it over.
    options = {"router-port": port, "nat-addresses": "router"}
    yield OvnRow(
        table=ROUTER_PORT, key=key, columns={"name": port, "mac": router_mac(key), "networks": (address,)},
        of=(MemberOf(table=ROUTER, key=overlay.id, column="ports"),),
    )  # fmt: skip
    to_router: Mapping[str, Value] = {
        "name": str(row_uuid(PORT, key)), "type": "router", "addresses": ("router",), "options": options,
    }  # fmt: skip
    yield OvnRow(table=PORT, key=key, columns=to_router, of=(MemberOf(table=SWITCH, key=outside.id, column="ports"),))
    yield OvnRow(
        table=RULE, key=key, columns=_from_outside((*overlay.subnets, *far), outside, str(to_router["name"])),
        of=(MemberOf(table=SWITCH, key=outside.id, column="acls"),),
    )  # fmt: skip
    yield OvnRow(
        table=ROUTE, key=key, columns={"ip_prefix": "0.0.0.0/0", "nexthop": provider.gateway, "output_port": port},
        of=(MemberOf(table=ROUTER, key=overlay.id, column="static_routes"),),
    )  # fmt: skip
    for subnet in of_family(4, overlay.subnets):
        yield _nat(overlay, f"{key}/{subnet}", "snat", out.address, subnet)


def _from_outside(inside: Iterable[str], outside: OvnNetwork, port: str) -> Mapping[str, Value]:
    """A router routes whatever comes with its MAC: without this, who is on the provider network would reach VMs by
    their own addresses, and be taken for one of them or of a network that theirs is joined with. What is sent to
    floating addresses is translated behind it. IPv6 leads nowhere there."""
    own = ", ".join(of_family(4, tuple(inside)))
    leads_in = f"ip4 && (ip4.dst != {outside.subnets[0]} || ip4.src == {{{own}}})"
    match = f'outport == "{port}" && (ip6 || ({leads_in}))'
    return {"priority": MAX_PRIORITY, "direction": "to-lport", "match": match, "action": "drop"}


def _gateways(key: str, gateways: Mapping[str, int]) -> Iterator[OvnRow]:
    for name, priority in gateways.items():
        columns: Mapping[str, Value] = {
            "name": f"{row_uuid(ROUTER_PORT, key)}_{name}", "chassis_name": name, "priority": priority
        }  # fmt: skip
        of = MemberOf(table=ROUTER_PORT, key=key, column="gateway_chassis")
        yield OvnRow(table=GATEWAY, key=f"{key}/{name}", columns=columns, of=(of,))


def _nat(overlay: OvnNetwork, key: str, kind: str, external: str, logical: str) -> OvnRow:
    columns: Mapping[str, Value] = {"type": kind, "external_ip": external, "logical_ip": logical}
    return OvnRow(table=NAT, key=key, columns=columns, of=(MemberOf(table=ROUTER, key=overlay.id, column="nat"),))


def address_rows(
    addresses: Iterable[FloatingAddress], vms: Mapping[str, Vm], networks: Mapping[str, Network]
) -> Iterator[OvnRow]:
    """Of those that lead to one of these VMs; ``networks``: by name on hosts, those of kind ovn that are wanted."""
    for floating in addresses:
        vm, network = vms.get(floating.vm or ""), networks.get(floating.card_network or "")
        if vm is None or network is None or network.overlay is None or network.overlay.out is None:
            continue
        overlay = network.overlay
        for own in of_family(4, addresses_of(vm, network.name)):
            yield _nat(overlay, f"{overlay.id}/{floating.address}", "dnat_and_snat", floating.address, own)
