# SPDX-License-Identifier: Apache-2.0
"""Networks over all hosts, as OVN carries them, and the ports of VMs there. Ships with the agent."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final, Literal
from uuid import UUID, uuid5

from orchestrator.core.errors import Conflict, InvalidInput

INTEGRATION_BRIDGE: Final = "br-int"
"""Of Open vSwitch, on every host of OVN (ovn-controller(8)): VMs' cards are plugged in there."""
GENEVE_BYTES: Final = 58
"""What a frame is longer by on the way between hosts: Ethernet, IPv4, UDP, Geneve with OVN's option (RFC 8926)."""
DEFAULT_MTU: Final = 1500 - GENEVE_BYTES
MAX_MTU: Final = 8942
MIN_MTU: Final = 1280
MAX_SUBNETS: Final = 8
MAX_DNS_SERVERS: Final = 3
MAX_DOMAINS: Final = 6
"""What resolvers of guests keep, resolv.conf(5)."""
_PORTS: Final = UUID("0b4f3d0e-54f3-5a0e-8a55-2f6d7c0e9b21")
_NEVER: Final = tuple(map(IPv4Network, ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3")))
"""This host, itself, link-local, and what is no machine's address: RFC 6890."""
_IPV6: Final = tuple(map(IPv6Network, ("fc00::/7", "2000::/3")))
"""Unique local addresses (RFC 4193), and those that are routed in the world (RFC 4291)."""
_IPV6_BITS: Final = 64
"""Of a subnet, as RFC 4291 has it."""
Subnet = IPv4Network | IPv6Network

FlowLog = Literal["off", "refused", "allowed", "all"]
"""Which connections of a network are on record (core/readings/flows.py)."""
PeerState = Literal["asked", "offered", "joined"]


@dataclass(frozen=True, kw_only=True)
class NetworkPeer:
    """Another network that this one's router shall lead to."""

    network: str
    """Its name on hosts."""
    id: str
    """Its UUID when it was agreed; one of that name that was made later is another. Empty: nobody has seen it."""
    state: PeerState
    """``asked``: by this network's tenant alone; ``offered``: by the other's; ``joined``: by both."""
    link: int = 0
    """Which pair of link-local addresses the two routers have between them; of each router no two are the same."""


@dataclass(frozen=True, kw_only=True)
class ProviderPlace:
    """What a provider network has of the site's: where it leaves hosts, and which of its addresses are ours."""

    physical: str
    """As ``ovn-bridge-mappings`` of hosts call it."""
    vlan: int | None
    gateway: str
    """IPv4 address of the site's router there."""
    first: str
    """The first of the IPv4 addresses that OVN may give away; all up to ``last``."""
    last: str

    @property
    def place(self) -> str:
        """For people."""
        return self.physical if self.vlan is None else f"VLAN {self.vlan} of {self.physical}"

    @property
    def size(self) -> int:
        """How many addresses those are."""
        return int(IPv4Address(self.last)) - int(IPv4Address(self.first)) + 1

    def __contains__(self, address: str) -> bool:
        return IPv4Address(self.first) <= IPv4Address(address) <= IPv4Address(self.last)


@dataclass(frozen=True, kw_only=True)
class WayOut:
    """How what a network's VMs send leaves it: by NAT (RFC 3022), as from one address of a provider network's."""

    network: str
    """Name of the provider network."""
    address: str
    """IPv4, of the network's router there."""


@dataclass(frozen=True, kw_only=True)
class OvnNetwork:
    """What a network has that OVN carries. Its subnets are its alone: another network may have the same."""

    id: str
    """UUID; never given again, so what is left of a network is none of another of its name."""
    subnets: tuple[str, ...]
    """IPv4 and IPv6, in CIDR form. The first address of each is the network's own router."""
    mtu: int = DEFAULT_MTU
    """In bytes, as guests are told."""
    dns: tuple[str, ...] = ()
    """Servers that guests ask; what the network knows itself is answered on the way there. Empty: the router's
    address, which knows nothing else."""
    search: tuple[str, ...] = ()
    """Domains in which guests look names up, beside the network's own."""
    dhcp: tuple[tuple[str, str], ...] = ()
    """Further options that guests are told, by the names that OVN has for them (ovn-nb(5), DHCP_Options)."""
    peers: tuple[NetworkPeer, ...] = ()
    """By their names, then offers as they came; core/peering.py."""
    provider: ProviderPlace | None = None
    """Of a provider network, which is the site's and has no router of its own; None: of a tenant's."""
    out: WayOut | None = None
    """None: nothing leads out of it."""
    flow_log: FlowLog = "off"
    """What is told of connections that begin and end at its cards."""

    def gateway_of(self, subnet: str) -> str:
        """Address of its router, or of the site's."""
        return router_of(subnet) if self.provider is None else self.provider.gateway


@dataclass(frozen=True, kw_only=True)
class NewOvnNetwork:
    """As somebody asks for it, unchecked. None: as it is; of a new one as :class:`OvnNetwork` has it."""

    subnets: tuple[str, ...]
    mtu: int | None = None
    dns: tuple[str, ...] | None = None
    search: tuple[str, ...] | None = None
    dhcp: tuple[tuple[str, str], ...] | None = None
    flow_log: FlowLog | None = None

    def checked(self, new_id: str, before: OvnNetwork | None = None) -> OvnNetwork:
        """:raises InvalidInput: ``network.subnet_invalid``, ``network.mtu_invalid``, ``network.dns_invalid``,
            ``network.dhcp_invalid``
        :raises Conflict: ``network.subnet_overlaps``"""
        is_now = before or OvnNetwork(id=new_id, subnets=self.subnets)
        mtu = is_now.mtu if self.mtu is None else self.mtu
        if not MIN_MTU <= mtu <= MAX_MTU:
            hint = f"{MIN_MTU} to {MAX_MTU}; the host's network cards pass {GENEVE_BYTES} bytes more"
            raise InvalidInput("network.mtu_invalid", f"an MTU of {str(mtu)[:20]} cannot be", hint=hint)
        return OvnNetwork(
            id=new_id, subnets=parse_subnets(self.subnets), mtu=mtu,
            dns=is_now.dns if self.dns is None else parse_dns(self.dns),
            search=is_now.search if self.search is None else parse_domains(self.search),
            dhcp=is_now.dhcp if self.dhcp is None else parse_dhcp(dict(self.dhcp)), peers=is_now.peers,
            provider=is_now.provider, out=is_now.out,
            flow_log=is_now.flow_log if self.flow_log is None else self.flow_log,
        )  # fmt: skip

    def is_like(self, other: OvnNetwork | None) -> bool:
        """What it leaves open is as it is there.

        :raises InvalidInput, Conflict: as :meth:`checked` does"""
        return other is not None and self.checked(other.id, other) == other


@dataclass(frozen=True, kw_only=True)
class OvnNetworkChange:
    """What shall be otherwise; None: it stays. Subnets come and never go: VMs have addresses there."""

    more_subnets: tuple[str, ...] = ()
    mtu: int | None = None
    dns: tuple[str, ...] | None = None
    search: tuple[str, ...] | None = None
    dhcp: tuple[tuple[str, str | None], ...] = ()
    """None: without that option."""
    flow_log: FlowLog | None = None

    def made_of(self, before: OvnNetwork) -> OvnNetwork:
        """With a subnet that it has already nothing comes. :raises: as :meth:`NewOvnNetwork.checked`"""
        added = tuple(subnet for subnet in self.more_subnets if subnet not in before.subnets)
        if added and before.provider is not None:
            hint = "add another provider network"
            raise InvalidInput("network.subnet_invalid", "a provider network has one subnet", hint=hint)
        options: dict[str, str | None] = {**dict(before.dhcp), **dict(self.dhcp)}
        kept = tuple((name, value) for name, value in options.items() if value is not None)
        return NewOvnNetwork(
            subnets=(*before.subnets, *added), mtu=self.mtu, dns=self.dns, search=self.search, dhcp=kept,
            flow_log=self.flow_log,
        ).checked(before.id, before)  # fmt: skip

    def __str__(self) -> str:
        """In one line, for the audit."""
        words = [*(f"subnet {subnet}" for subnet in self.more_subnets)]
        words += [] if self.mtu is None else [f"MTU {self.mtu}"]
        words += [] if self.flow_log is None else [f"flow log {self.flow_log}"]
        for what, several in (("DNS servers", self.dns), ("search domains", self.search)):
            words += [] if several is None else [f"{what} {', '.join(several) or 'none'}"]
        return ", ".join([*words, *(f"{name}={value}" if value else f"no {name}" for name, value in self.dhcp)])


NO_CHANGE: Final = OvnNetworkChange()


@dataclass(frozen=True, kw_only=True)
class Port:
    """An address of a VM's card on such a network: its as long as the VM is, wherever that runs. A card has one of
    each family that its network has subnets of, that of IPv4 first."""

    network: str
    """Its name on hosts."""
    address: str
    """IPv4 or IPv6, as RFC 5952 writes it."""


def port_id(vm_id: str, card: int) -> str:
    """What OVN and the host's Open vSwitch know the card by (``iface-id``)."""
    return str(uuid5(_PORTS, f"{vm_id} {card}"))


@lru_cache(maxsize=1024)
def router_of(subnet: str) -> str:
    """Its first address. Asked several times for each card that is written."""
    return str(ip_network(subnet)[1])


def parse_subnets(texts: tuple[str, ...]) -> tuple[str, ...]:
    """In canonical form. Any range will do that machines may have; none overlaps another of these.

    :raises InvalidInput: ``network.subnet_invalid``; :raises Conflict: ``network.subnet_overlaps``"""
    if not 1 <= len(texts) <= MAX_SUBNETS:
        hint = f"--subnet 10.0.0.0/24, at most {MAX_SUBNETS} times"
        raise InvalidInput("network.subnet_invalid", "a network of kind ovn says its subnets", hint=hint)
    subnets = list[Subnet]()
    for text in texts:
        subnet = _subnet(text)
        if any(subnet.overlaps(other) for other in subnets):
            raise Conflict("network.subnet_overlaps", f"{subnet} overlaps another one of these", hint="leave one out")
        subnets.append(subnet)
    return tuple(map(str, subnets))


def subnet_hint(text: str, example: str) -> str:
    """How a network that is refused is written: ``10.88.7.0/24`` of ``10.88.7.5/24``, else as the example."""
    try:
        network = ip_network(text if "/" in text else "", strict=False)
    except ValueError:
        return f"write it as {example}"
    return f"write it as {network}"


def _subnet(text: str) -> Subnet:
    try:
        subnet = ip_network(text)
    except ValueError:
        subnet = None
    if subnet is None or text not in {str(subnet), subnet.with_netmask}:
        hint = subnet_hint(text, "10.88.1.0/24 or fd00:88:1::/64")
        raise InvalidInput("network.subnet_invalid", f"{ascii(text)[:60]} is not an IP network", hint=hint)
    if isinstance(subnet, IPv6Network):
        fits = subnet.prefixlen == _IPV6_BITS and any(subnet.subnet_of(own) for own in _IPV6)
    else:
        fits = 16 <= subnet.prefixlen <= 29 and not any(subnet.overlaps(other) for other in _NEVER)
    if not fits:
        raise InvalidInput(
            "network.subnet_invalid", f"{subnet} cannot be a network for VMs",
            hint="take addresses that machines may have: 16 to 29 bits as 10.0.0.0/24, of IPv6 64 as fd00:88:1::/64",
        )  # fmt: skip
    return subnet


def parse_dns(servers: tuple[str, ...]) -> tuple[str, ...]:
    """In canonical form. :raises InvalidInput: ``network.dns_invalid``"""
    if len(servers) > MAX_DNS_SERVERS or not all(_is_machine(server) or _is_machine6(server) for server in servers):
        hint = f"addresses of at most {MAX_DNS_SERVERS} servers"
        raise InvalidInput("network.dns_invalid", f"{ascii(', '.join(servers))[:60]} cannot be asked", hint=hint)
    return servers


def parse_domains(domains: tuple[str, ...]) -> tuple[str, ...]:
    """:raises InvalidInput: ``network.dns_invalid``"""
    for domain in domains:
        if len(domain) > 253 or _DOMAIN.fullmatch(domain) is None:
            hint = "labels of a-z, 0-9 and -, with dots between: rack.example.org"
            raise InvalidInput("network.dns_invalid", f"{ascii(domain)[:60]} is no domain", hint=hint)
    if len(domains) > MAX_DOMAINS:
        raise InvalidInput("network.dns_invalid", f"{len(domains)} search domains", hint=f"at most {MAX_DOMAINS}")
    return domains


def parse_dhcp(options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """By name. :raises InvalidInput: ``network.dhcp_invalid``"""
    for name, value in options.items():
        if name not in DHCP_OPTIONS:
            raise InvalidInput(
                "network.dhcp_invalid", f"no DHCP option of ours is called {ascii(name)[:40]}",
                hint=f"one of {', '.join(DHCP_OPTIONS)}; MTU, DNS servers and search domains are said as such",
            )  # fmt: skip
        example, is_valid = DHCP_OPTIONS[name]
        if not is_valid(value):
            message = f"{ascii(value)[:60]} cannot be {name}"
            raise InvalidInput("network.dhcp_invalid", message, hint=f"for example {name}={example}")
    return tuple(sorted(options.items()))


def _are_machines(text: str) -> bool:
    addresses = text.split(",")
    return len(addresses) <= MAX_DNS_SERVERS and all(map(_is_machine, addresses))


def _is_machine(address: str) -> bool:
    try:
        return str(IPv4Address(address)) == address and not any(IPv4Address(address) in net for net in _NEVER)
    except ValueError:
        return False


def _is_machine6(address: str) -> bool:
    return is_address(address) and any(ip_address(address) in own for own in _IPV6)


def is_address(text: str) -> bool:
    """Whether it is one of IPv4 or IPv6 as it is usually written. One with a scope is none: that may be any text."""
    try:
        return "%" not in text and str(ip_address(text)) == text
    except ValueError:
        return False


def of_family(version: int, texts: Iterable[str]) -> tuple[str, ...]:
    """Those of these addresses, or subnets, that are of IPv4 or of IPv6."""
    return tuple(text for text in texts if (":" in text) == (version == 6))


_DOMAIN: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)+")
_FILE: Final = re.compile("[A-Za-z0-9._/:-]{1,128}")
_SECONDS: Final = re.compile("[1-9][0-9]{2,6}")
DHCP_OPTIONS: Final[Mapping[str, tuple[str, Callable[[str], bool]]]] = {
    "ntp_server": ("192.0.2.7,192.0.2.8", _are_machines),
    "tftp_server_address": ("192.0.2.9", _are_machines),
    "bootfile_name": ("http://192.0.2.9/boot.ipxe", lambda text: _FILE.fullmatch(text) is not None),
    "lease_time": ("3600", lambda text: _SECONDS.fullmatch(text) is not None),
}
"""An example, and what may be said; of all that OVN knows (ovn-nb(5)) what is a site's matter and no second word for
something of ours."""


def check_address(address: str, subnets: tuple[str, ...]) -> str:
    """That a VM may have it. :raises InvalidInput: ``network.address_invalid``"""
    wanted = ip_address(address) if is_address(address) else None
    inside = [net for net in map(ip_network, subnets) if wanted is not None and wanted in net]
    if wanted is None or not inside or wanted in {inside[0][0], inside[0][1], inside[0][-1]}:
        hint = f"one out of {', '.join(subnets)}; the first is the router's"
        raise InvalidInput("network.address_invalid", f"{ascii(address)[:40]} can be no VM's there", hint=hint)
    return str(wanted)


def candidates(subnets: tuple[str, ...], vm_id: str, card: int) -> Iterator[str]:
    """Each address that a VM may have, from where its id falls: two that are made at once hardly meet."""
    networks = [ip_network(subnet) for subnet in subnets]
    sizes = [network.num_addresses - 3 for network in networks]
    total, offset = sum(sizes), int(hashlib.sha256(f"{vm_id} {card}".encode()).hexdigest(), 16)
    for number in range(total):
        index = (offset + number) % total
        for network, size in zip(networks, sizes, strict=True):
            if index < size:
                yield str(network[index + 2])
                break
            index -= size
