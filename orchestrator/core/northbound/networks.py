# SPDX-License-Identifier: Apache-2.0
"""Which rows a network of kind ovn and the cards of its VMs are in OVN's northbound: ovn-nb(5). Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Final

from orchestrator.core.domain_xml.interface import mac_address
from orchestrator.core.northbound.rows import MemberOf, OvnRow, Value, row_uuid
from orchestrator.core.overlay import OvnNetwork, ProviderPlace, of_family, port_id, router_of
from orchestrator.core.vms.network import Network, dns_domain
from orchestrator.core.vms.vm import Vm

SWITCH, PORT = "Logical_Switch", "Logical_Switch_Port"
ROUTER, ROUTER_PORT, ROUTE = "Logical_Router", "Logical_Router_Port", "Logical_Router_Static_Route"
NAT, GATEWAY, RULE = "NAT", "Gateway_Chassis", "ACL"
_DHCP, DNS = "DHCP_Options", "DNS"
TABLES: Mapping[str, tuple[str, ...]] = {
    SWITCH: ("name", "ports", "acls", "dns_records"),
    PORT: (
        "name",
        "type",
        "addresses",
        "port_security",
        "options",
        "dhcpv4_options",
        "dhcpv6_options",
        "enabled",
        "parent_name",
        "tag",
    ),
    ROUTER: ("name", "ports", "static_routes", "nat"),
    ROUTER_PORT: ("name", "mac", "networks", "gateway_chassis", "peer", "ipv6_ra_configs"),
    ROUTE: ("ip_prefix", "nexthop", "output_port"),
    NAT: ("type", "external_ip", "logical_ip"),
    GATEWAY: ("name", "chassis_name", "priority"),
    _DHCP: ("cidr", "options"),
    DNS: ("records", "options"),
    RULE: ("priority", "direction", "match", "action", "log", "name", "severity", "meter"),
}
"""Where rows of networks are, and what of them is compared."""
_LEASE_S = 43200
MAX_PRIORITY = 32767
"""Of a rule that comes before all others."""
_IS_SERVER: Final = "udp.src == 67 || udp.src == 547"
"""What answers of a DHCP server come from."""
_IPV6_LINK: Final = ("fe80::/10", "ff00::/8")
"""What stays within a network: link-local addresses and groups (RFC 4291)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """Of a VM, on a network of kind ovn."""

    vm: str
    """Its id."""
    name: str
    """What its tenant calls it."""
    number: int
    """Which of its cards, from 0."""
    addresses: tuple[str, ...]
    """IPv4 and IPv6, one of each at most."""
    hosts: tuple[str, ...]
    """Who may carry it: the VM's host, and first of all; while it moves also where it goes."""
    groups: tuple[MemberOf, ...] = ()
    """Security groups that it is in, as the sets of them that its port is in."""
    owned: bool = False
    """Whether OVN can be told that nobody else knows its names (ovn-nb(5), ``ovn-owned``)."""

    @property
    def key(self) -> str:
        return f"{self.vm}/{self.number}"


def cards_of(vm: Vm, hosts: tuple[str, ...]) -> tuple[tuple[str, Card], ...]:
    """(name of the network on hosts, card) of each that is on such a network."""
    own = {network: addresses_of(vm, network) for network in dict.fromkeys(port.network for port in vm.ports)}
    numbers = {name: number for number, name in enumerate(vm.spec.networks)}
    return tuple(
        (name, Card(vm=vm.id, name=vm.spec.name, number=numbers[name], addresses=addresses, hosts=hosts))
        for name, addresses in own.items()
    )


def addresses_of(vm: Vm, network: str) -> tuple[str, ...]:
    """Of its card on the network that hosts call so."""
    return tuple(port.address for port in vm.ports if port.network == network)


def network_rows(network: Network, overlay: OvnNetwork, far: Iterable[str] = ()) -> tuple[OvnRow, ...]:
    """A switch; what DHCP answers, for each subnet; that no guest answers as a DHCP server; and its router, which leads
    from one subnet to the next, or of a provider network where it leaves hosts. ``far``: subnets of networks that it is
    joined with (joined.py), which guests are told the way to."""
    ways = (*overlay.subnets, *far)
    key, mac = overlay.id, router_mac(overlay.id)
    return (
        OvnRow(table=SWITCH, key=key, columns={"name": network.name}),
        *(_router(network, overlay, mac) if overlay.provider is None else (_uplink(key, overlay.provider),)),
        _rule(key, overlay, "from-lport", _IS_SERVER, "drop"),
        *_within(overlay, of_family(6, ways)),
        *(_dhcp(network, overlay, subnet, mac, of_family(4, ways)) for subnet in of_family(4, overlay.subnets)),
        *(_dhcp_of_ipv6(network, overlay, subnet, mac) for subnet in of_family(6, overlay.subnets)),
    )


def _rule(
    key: str, overlay: OvnNetwork, direction: str, match: str, action: str, priority: int = MAX_PRIORITY
) -> OvnRow:
    columns: Mapping[str, Value] = {"priority": priority, "direction": direction, "match": match, "action": action}
    of = MemberOf(table=SWITCH, key=overlay.id, column="acls")
    return OvnRow(table=RULE, key=key, columns=columns, of=(of,))


def _within(overlay: OvnNetwork, subnets: tuple[str, ...]) -> Iterator[OvnRow]:
    """Nothing of IPv6 leads outside. Guests take the router for a default one all the same, as OVN advertises no other
    routes: they are refused there at once, and take IPv4. Two rules, as one with ``!=`` would be as many flows as the
    lengths of all these prefixes multiplied."""
    if subnets:
        to_router = f'outport == "{row_uuid(PORT, overlay.id)}"'
        inside = f"{to_router} && ip6.dst == {{{', '.join((*subnets, *_IPV6_LINK))}}}"
        yield _rule(f"{overlay.id}/inside", overlay, "to-lport", inside, "allow")
        yield _rule(f"{overlay.id}/outside", overlay, "to-lport", f"{to_router} && ip6", "reject", MAX_PRIORITY - 1)


def _uplink(key: str, provider: ProviderPlace) -> OvnRow:
    """The port of the switch that is the site's network, on each host that has it (ovn-nb(5), localnet)."""
    columns: Mapping[str, Value] = {
        "name": str(row_uuid(PORT, key)), "type": "localnet", "addresses": ("unknown",),
        "options": {"network_name": provider.physical}, "tag": () if provider.vlan is None else provider.vlan,
    }  # fmt: skip
    return OvnRow(table=PORT, key=key, columns=columns, of=(MemberOf(table=SWITCH, key=key, column="ports"),))


def _router(network: Network, overlay: OvnNetwork, mac: str) -> tuple[OvnRow, ...]:
    key = overlay.id
    addresses = tuple(f"{router_of(subnet)}/{ip_network(subnet).prefixlen}" for subnet in overlay.subnets)
    advertised = {"address_mode": "dhcpv6_stateful", "send_periodic": "true", "mtu": str(overlay.mtu)}
    router_port = str(row_uuid(ROUTER_PORT, key))
    to_router: Mapping[str, Value] = {
        "name": str(row_uuid(PORT, key)), "type": "router", "addresses": ("router",),
        "options": {"router-port": router_port},
    }  # fmt: skip
    return (
        OvnRow(table=ROUTER, key=key, columns={"name": network.name}),
        OvnRow(
            table=ROUTER_PORT, key=key, of=(MemberOf(table=ROUTER, key=key, column="ports"),),
            columns={"name": router_port, "mac": mac, "networks": addresses,
                     "ipv6_ra_configs": advertised if of_family(6, overlay.subnets) else {}},
        ),
        OvnRow(table=PORT, key=key, columns=to_router, of=(MemberOf(table=SWITCH, key=key, column="ports"),)),
    )  # fmt: skip


def card_rows(network: Network, overlay: OvnNetwork, card: Card) -> tuple[OvnRow, ...]:
    """Its port, which takes nothing from the guest but its own addresses, and its names."""
    own = " ".join((mac_address(card.vm, card.number), *card.addresses))
    columns: Mapping[str, Value] = {
        "name": port_id(card.vm, card.number), "type": "", "addresses": (own,), "port_security": (own,),
        "options": {"requested-chassis": ",".join(card.hosts)}, "dhcpv4_options": _dhcp_of_card(overlay, card, 4),
        "dhcpv6_options": _dhcp_of_card(overlay, card, 6), "enabled": (), "parent_name": (), "tag": (),
    }  # fmt: skip
    names: dict[str, Value] = {"records": _records(network, card)}
    if card.owned:
        names["options"] = {"ovn-owned": "true"}
    return (
        OvnRow(
            table=PORT, key=card.key, columns=columns,
            of=(MemberOf(table=SWITCH, key=overlay.id, column="ports"), *card.groups),
        ),
        OvnRow(table=DNS, key=card.key, columns=names,
            of=(MemberOf(table=SWITCH, key=overlay.id, column="dns_records"),)),
    )  # fmt: skip


def _dhcp_of_card(overlay: OvnNetwork, card: Card, version: int) -> Value:
    """What its address of IPv4 or IPv6 is told with."""
    for address in of_family(version, card.addresses):
        inside = (subnet for subnet in overlay.subnets if ip_address(address) in ip_network(subnet))
        return row_uuid(_DHCP, _dhcp_key(overlay, next(inside)))
    return ()


def rows_of(
    networks: Iterable[tuple[Network, OvnNetwork, Iterable[Card]]], far: Mapping[str, Iterable[str]]
) -> Iterator[OvnRow]:
    """All of these; rows come after those that they are in. ``far``: name of a network → subnets of those that it is
    joined with."""
    for network, overlay, cards in networks:
        yield from network_rows(network, overlay, far.get(network.name, ()))
        for card in cards:
            yield from card_rows(network, overlay, card)


def _dhcp(network: Network, overlay: OvnNetwork, subnet: str, mac: str, ways: Iterable[str]) -> OvnRow:
    router = overlay.gateway_of(subnet)
    options = {
        "server_id": router, "server_mac": mac, "lease_time": str(_LEASE_S), "mtu": str(overlay.mtu),
    }  # fmt: skip
    options |= _dns_of(overlay, router)
    options |= {name: _option(name, value) for name, value in overlay.dhcp}
    if overlay.search:
        options["domain_search_list"] = f'"{",".join(overlay.search)}"'
    others = [f"{other},{router}" for other in ways if other != subnet]
    if overlay.out is not None or overlay.provider is not None:
        options["router"] = router
    elif others:
        options["classless_static_route"] = f"{{{', '.join(others)}}}"
    domain = dns_domain(network.name)
    if domain is not None:
        options["domain_name"] = f'"{domain}"'
    return OvnRow(table=_DHCP, key=_dhcp_key(overlay, subnet), columns={"cidr": subnet, "options": options})


def _dhcp_of_ipv6(network: Network, overlay: OvnNetwork, subnet: str, mac: str) -> OvnRow:
    """Routers advertise the rest. Of domains that guests look names up in OVN tells one here (RFC 3646)."""
    options = {"server_id": mac, **_dns_of(overlay, router_of(subnet))}
    domain = dns_domain(network.name)
    if domain is not None:
        options["domain_search"] = f'"{domain}"'
    return OvnRow(table=_DHCP, key=_dhcp_key(overlay, subnet), columns={"cidr": subnet, "options": options})


def _dns_of(overlay: OvnNetwork, router: str) -> dict[str, str]:
    """Servers of the router's family: none, where the network has those of the other alone, as the router knows nothing
    but the network's names."""
    servers = of_family(6 if ":" in router else 4, overlay.dns or (router,))
    return {"dns_server": f"{{{', '.join(servers)}}}"} if servers else {}


def _option(name: str, value: str) -> str:
    """As OVN reads values of its kind: a text in quotes, addresses as a set."""
    return f'"{value}"' if name == "bootfile_name" else f"{{{value}}}" if "server" in name else value


def _dhcp_key(overlay: OvnNetwork, subnet: str) -> str:
    return f"{overlay.id}/{subnet}"


def _records(network: Network, card: Card) -> dict[str, str]:
    """Of a tenant's network; VMs on one of the site are strangers to each other.

    An OVN that cannot be told that names are ours passes a question for an IPv6 address on to its router, whose refusal
    makes resolvers give the name up. There the IPv4 address is the answer, as RFC 4291 (2.5.5.2) writes it in IPv6:
    whoever connects to that speaks IPv4."""
    domain = dns_domain(network.name)
    if domain is None:
        return {}
    whole = f"{card.name}.{domain}"
    own = " ".join(card.addresses)
    if not (card.owned or of_family(6, card.addresses)):
        own += f" ::ffff:{own}"
    return {card.name: own, whole: own, **{ip_address(each).reverse_pointer: whole for each in card.addresses}}


def router_mac(key: str) -> str:
    """Locally administered."""
    digest = hashlib.sha256(f"router {key}".encode()).hexdigest()
    return ":".join(("02", *(digest[place : place + 2] for place in range(0, 10, 2))))
