# SPDX-License-Identifier: Apache-2.0
"""A network that VMs are put on: a libvirt NAT network with DHCP on every host that needs it, or a bridge that hosts
have by themselves.

A tenant's network is the tenant's alone, and its VMs reach each other there. One of the site has VMs of many tenants,
each with a port that passes nothing to the others.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal
from xml.etree import ElementTree as ET

from orchestrator.core.actions.host_actions import EnsureBridgedNetwork, EnsureNetwork
from orchestrator.core.errors import Conflict, InvalidInput, NotFound
from orchestrator.core.hosts.bridges import Uplink, is_ipv4
from orchestrator.core.labels import NOTHING_SAID, About
from orchestrator.core.names import is_name, near
from orchestrator.core.overlay import NewOvnNetwork, OvnNetwork, subnet_hint

DEFAULT_NAME = "default"
"""What a VM gets when no network is named: its tenant's own, made when first needed. Of hosts it is libvirt's own."""
MAX_OF_TENANT = 16
"""Networks of one tenant: subnets are everybody's."""
MAX_CARDS = 8
"""Network cards of one VM, each on a network of its own."""
MAX_ADDRESSES_OF_TENANT = 4096
"""Of all subnets that a tenant chose: as many as 16 of the usual size have."""
DEFAULT_RANGE = ipaddress.IPv4Network("10.88.0.0/13")
"""What tenants' subnets are chosen out of, where the site says nothing else."""
_WIDTH = 24
"""Of a subnet that nobody chose."""
_PRIVATE = tuple(map(ipaddress.IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")))
"""Of RFC 1918, and what RFC 6598 sets apart for use behind NAT."""
_PRIVATE_WORDS = f"{', '.join(map(str, _PRIVATE[:-1]))} or {_PRIVATE[-1]}"


@dataclass(frozen=True, kw_only=True)
class Network:
    """It has a subnet, an uplink or an overlay. Addresses out of a subnet are only meaningful on their host: every host
    has the same one behind its own NAT."""

    name: str
    """On hosts, where no two have the same: of a tenant ``tenant.network``, of the site as it is called."""
    subnet: str | None = None
    """IPv4 network in CIDR form; the first address is the host's."""
    shared: bool = False
    """Of one of the site: every tenant may put VMs on it. A tenant's never is."""
    uplink: Uplink | None = None
    """The bridge of a network that is not ours to make."""
    dhcp_servers: tuple[str, ...] = ()
    """Of one with an uplink: whose answers alone give a VM its address; empty: any that is no VM of ours."""
    overlay: OvnNetwork | None = None
    """Of kind ovn: over all hosts, with neither subnet nor uplink of the above."""
    about: About = field(default=NOTHING_SAID, compare=False)

    @property
    def tenant(self) -> str | None:
        """Whose it is; None: the site's."""
        return tenant_of(self.name)

    @property
    def short(self) -> str:
        """What its users call it."""
        return short_name(self.name)

    @property
    def kind(self) -> Literal["nat", "bridge", "ovn", "provider"]:
        if self.overlay is not None and self.overlay.provider is not None:
            return "provider"
        return "ovn" if self.overlay is not None else "nat" if self.uplink is None else "bridge"

    @property
    def dns_servers(self) -> tuple[str, ...]:
        """Which its VMs are told; none: those that the bridge's own DHCP server tells."""
        if self.overlay is not None:
            return self.overlay.dns or (self.overlay.gateway_of(self.overlay.subnets[0]),)
        return () if self.subnet is None else (_first_address(self.subnet),)

    @property
    def dns_domain(self) -> str | None:
        """As :func:`dns_domain`; None also of one with an uplink."""
        return None if self.uplink is not None else dns_domain(self.name)

    @property
    def place(self) -> str:
        """Its subnets or its uplink, for people."""
        return ", ".join(self.overlay.subnets) if self.overlay is not None else self.subnet or str(self.uplink)

    def ensure(self) -> tuple[EnsureNetwork | EnsureBridgedNetwork, ...]:
        """What makes it on a host; one of kind ovn is on all of them."""
        if self.overlay is not None:
            return ()
        if self.uplink is not None:
            uplink, servers = self.uplink, self.dhcp_servers
            return (EnsureBridgedNetwork(name=self.name, bridge=uplink.bridge, vlan=uplink.vlan, dhcp_servers=servers),)
        return (EnsureNetwork(name=self.name, subnet=self.subnet or ""),)


def unknown_network(name: str, known: Iterable[str]) -> NotFound:
    """``known``: what networks are called that could have been meant."""
    hint = near(name, known, "vgpuctl network list")
    return NotFound("network.unknown", f"no network is called {name[:63]!a}", hint=hint)


def own_name(tenant: str, short: str) -> str:
    """On hosts, of a tenant's network. Names hold no dot, so two tenants never collide."""
    return f"{tenant}.{short}"


def tenant_of(name: str) -> str | None:
    """Whose network is called so on hosts; None: the site's."""
    tenant, dot, _ = name.rpartition(".")
    return tenant if dot else None


def short_name(name: str) -> str:
    """As :attr:`Network.short`."""
    return name.rpartition(".")[2]


def dns_domain(name: str) -> str | None:
    """In which VMs of a network that hosts call so find each other by name: ``web`` is ``web.<this>`` and ``web``.
    None: it is of the site, and its VMs are strangers to each other."""
    tenant = tenant_of(name)
    return None if tenant is None else f"{short_name(name)}.{tenant}.internal"


def check_host_name(name: str) -> str:
    """The name on a host itself when it is one of ours.

    :raises InvalidInput: ``network.name_invalid``
    """
    if not all(is_name(part) for part in name.split(".", 1)):
        raise InvalidInput(
            "network.name_invalid", f"{ascii(name)[:60]} cannot be a network", hint="NAME or TENANT.NAME"
        )
    return name


def parse_subnet(text: str, taken: tuple[str, ...]) -> str:
    """A private IPv4 network of 16 to 28 bits that overlaps none of ``taken``, in canonical form.

    :raises InvalidInput: ``network.subnet_invalid``
    :raises Conflict: ``network.subnet_overlaps``
    """
    try:
        subnet = ipaddress.IPv4Network(text)
    except ValueError:
        subnet = None
    if subnet is None or text not in {str(subnet), subnet.with_netmask}:  # Python also takes 10.88.1.0/024
        hint = subnet_hint(text, "10.88.1.0/24") if ":" not in text else "write it as 10.88.1.0/24"
        raise InvalidInput("network.subnet_invalid", f"{ascii(text)[:60]} is not an IPv4 network", hint=hint)
    if not 16 <= subnet.prefixlen <= 28 or not any(subnet.subnet_of(private) for private in _PRIVATE):
        raise InvalidInput(
            "network.subnet_invalid",
            f"{subnet} cannot be a network for VMs",
            hint=f"take 16 to 28 bits out of {_PRIVATE_WORDS}",
        )
    for other in taken:
        if subnet.overlaps(ipaddress.IPv4Network(other)):
            raise Conflict(
                "network.subnet_overlaps",
                f"{subnet} overlaps another network",  # whose one is not said: it may be another tenant's
                hint="choose another subnet, or leave it out and get a free one",
            )
    return str(subnet)


def check_range(subnets: ipaddress.IPv4Network) -> ipaddress.IPv4Network:
    """The same, when networks of tenants may be in it. :raises ValueError: why not"""
    if not 8 <= subnets.prefixlen <= _WIDTH or not any(subnets.subnet_of(private) for private in _PRIVATE):
        raise ValueError(f"not 8 to {_WIDTH} bits out of {_PRIVATE_WORDS}")
    return subnets


def check_of_tenant(subnet: str, others: Iterable[str], subnets: ipaddress.IPv4Network) -> None:
    """Whether a tenant may choose it by itself. ``others``: subnets that are the tenant's already; ``subnets``: what
    the site lets tenants choose out of.

    :raises InvalidInput: ``network.outside_range``; :raises Conflict: ``network.too_large``
    """
    if not ipaddress.IPv4Network(subnet).subnet_of(subnets):
        raise InvalidInput(
            "network.outside_range",
            f"{subnet} is not in {subnets}, which networks of tenants are in",
            hint="leave --subnet out and get a free one; an operator may create it with any",
        )
    addresses = sum(ipaddress.IPv4Network(network).num_addresses for network in (subnet, *others))
    if addresses > MAX_ADDRESSES_OF_TENANT:
        raise Conflict(
            "network.too_large",
            f"the tenant's networks would have {addresses} addresses together",
            hint=f"at most {MAX_ADDRESSES_OF_TENANT}: choose a smaller subnet, as 10.88.1.0/28, or delete a network",
        )


def check_no_host(subnet: str, addresses: Iterable[str]) -> None:
    """``addresses``: of hosts, as they were added; names are not looked up.

    :raises Conflict: ``network.subnet_of_hosts``"""
    for address in host_networks(addresses):
        if ipaddress.IPv4Network(address).overlaps(ipaddress.IPv4Network(subnet)):
            raise Conflict(
                "network.subnet_of_hosts",
                f"a host of the pool has an address in {subnet}",
                hint="choose another subnet, or leave it out and get a free one",
            )


def host_networks(addresses: Iterable[str]) -> tuple[str, ...]:
    """Of each host whose address is an IPv4 one, that address as a network of one."""
    return tuple(f"{address}/32" for address in addresses if is_ipv4(address))


def free_subnet(taken: tuple[str, ...], subnets: ipaddress.IPv4Network = DEFAULT_RANGE) -> str:
    """The first free /24 of the range.

    :raises Conflict: ``network.subnets_used_up``
    """
    used = {ipaddress.IPv4Network(other) for other in taken}
    others = [other for other in used if other.prefixlen != _WIDTH]
    for subnet in subnets.subnets(new_prefix=_WIDTH):
        if subnet not in used and not any(subnet.overlaps(other) for other in others):
            return str(subnet)
    raise Conflict("network.subnets_used_up", f"every subnet of {subnets} is taken", hint="give one with --subnet")


def dhcp_servers(made: EnsureNetwork | EnsureBridgedNetwork) -> tuple[str, ...]:
    """Addresses that DHCP answers come from on such a network."""
    if isinstance(made, EnsureBridgedNetwork):
        return made.dhcp_servers
    return (_first_address(made.subnet),)


def _first_address(subnet: str) -> str:
    """The host's: its DHCP and its DNS server."""
    return str(ipaddress.IPv4Network(subnet)[1])


def dhcp_addresses(first: str, last: str, mac: str) -> Iterator[str]:
    """All of a range of IPv4, in the order in which a host of NAT looks for what it keeps for a card: each begins where
    its hardware address falls."""
    start = ipaddress.IPv4Address(first)
    count = int(ipaddress.IPv4Address(last)) - int(start) + 1
    offset = int(hashlib.sha256(mac.encode()).hexdigest(), 16)
    return (str(start + (offset + number) % count) for number in range(count))


def bridged_xml(name: str, bridge: str) -> str:
    """The libvirt network on a bridge that the host has: libvirt changes nothing of it."""
    root = ET.Element("network")
    ET.SubElement(root, "name").text = name
    ET.SubElement(root, "forward", mode="bridge")
    ET.SubElement(root, "bridge", name=bridge)
    return ET.tostring(root, encoding="unicode")


def network_xml(name: str, text: str) -> str:
    """The libvirt network: NAT, DHCP over all addresses but the host's, a DNS domain. ``text``: its subnet."""
    subnet = ipaddress.IPv4Network(text)
    root = ET.Element("network")
    ET.SubElement(root, "name").text = name
    ET.SubElement(root, "forward", mode="nat")
    domain = dns_domain(name)
    if domain is not None:
        ET.SubElement(root, "domain", name=domain, localOnly="yes")
    ip = ET.SubElement(root, "ip", address=str(subnet[1]), prefix=str(subnet.prefixlen))
    dhcp = ET.SubElement(ip, "dhcp")
    ET.SubElement(dhcp, "range", start=str(subnet[2]), end=str(subnet[-2]))
    return ET.tostring(root, encoding="unicode")


@dataclass(frozen=True, kw_only=True)
class WantedNetwork:
    """As a file says it, and of one that exists as a file would."""

    name: str
    subnet: str | None = None
    """None: any will do, where no bridge is wanted."""
    tenant: str | None = None
    """Whose it is; None: the site's, for every tenant."""
    uplink: Uplink | None = None
    """The bridge of hosts that it is; None: a NAT network of ours."""
    dhcp_servers: tuple[str, ...] = ()
    """Of one with an uplink: whose answers count there; empty: any."""
    overlay: NewOvnNetwork | None = None
    """Of one of kind ovn: what it says of it."""
    out: str | None = None
    """Of one of kind ovn: provider network that leads out of it; of a file None is any."""
    peers: tuple[str, ...] = ()
    """Of one of kind ovn: keys of networks that its tenant has it joined with, or asks for."""
    leads_out: bool = False
    """Of one that exists: it is a provider network, which no file makes."""

    @property
    def kind(self) -> Literal["nat", "bridge", "ovn", "provider"]:
        if self.leads_out:
            return "provider"
        return "ovn" if self.overlay is not None else "nat" if self.uplink is None else "bridge"

    @property
    def key(self) -> str:
        """``tenant/name``, of the site ``name``."""
        return self.name if self.tenant is None else f"{self.tenant}/{self.name}"


def place_of(network: WantedNetwork) -> dict[str, str]:
    """Where it is, as text by the fields of a file; of one of kind ovn what it says, and no more."""
    if network.overlay is not None:
        overlay = network.overlay
        lists = {"dns_servers": overlay.dns, "search_domains": overlay.search}
        texts = {name: ", ".join(several) or "none" for name, several in lists.items() if several is not None}
        options = {f"dhcp_options.{name}": value for name, value in overlay.dhcp or ()}
        maybe = {"mtu": overlay.mtu, "out": network.out, "flow_log": overlay.flow_log}
        texts |= {name: str(value) for name, value in maybe.items() if value is not None}
        return {"kind": "ovn", "subnets": ", ".join(sorted(overlay.subnets)), **texts, **options}
    if network.uplink is None:
        return {"subnet": network.subnet or "the next free one"}
    vlan = {} if network.uplink.vlan is None else {"vlan": str(network.uplink.vlan)}
    servers = {"dhcp_servers": ", ".join(network.dhcp_servers)} if network.dhcp_servers else {}
    return {"bridge": network.uplink.bridge} | vlan | servers
