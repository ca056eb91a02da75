# SPDX-License-Identifier: Apache-2.0
"""A network that VMs are put on: a libvirt NAT network with DHCP on every host that needs it."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from orchestrator.core.errors import Conflict, InvalidInput

DEFAULT_NAME = "default"
DEFAULT_SUBNET = "192.168.122.0/24"
"""libvirt's own default network, so that a host that has it already fits."""
_POOL = ipaddress.IPv4Network("10.88.0.0/16")
_PRIVATE = tuple(ipaddress.IPv4Network(n) for n in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))


@dataclass(frozen=True, kw_only=True)
class Network:
    """Addresses of VMs are only meaningful on their host: every host has the same subnet behind its own NAT."""

    name: str
    subnet: str
    """IPv4 network in CIDR form; the first address is the host's."""


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
        raise InvalidInput(
            "network.subnet_invalid", f"{ascii(text)[:60]} is not an IPv4 network", hint="write it as 10.88.1.0/24"
        )
    if not 16 <= subnet.prefixlen <= 28 or not any(subnet.subnet_of(private) for private in _PRIVATE):
        raise InvalidInput(
            "network.subnet_invalid",
            f"{subnet} cannot be a network for VMs",
            hint="take 16 to 28 bits out of 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16",
        )
    for other in taken:
        if subnet.overlaps(ipaddress.IPv4Network(other)):
            raise Conflict(
                "network.subnet_overlaps",
                f"{subnet} overlaps {other} of another network",
                hint="choose another subnet, or leave it out and get a free one",
            )
    return str(subnet)


def free_subnet(taken: tuple[str, ...]) -> str:
    """The first free /24 of our range.

    :raises Conflict: ``network.subnets_used_up``
    """
    used = [ipaddress.IPv4Network(other) for other in taken]
    for subnet in _POOL.subnets(new_prefix=24):
        if not any(subnet.overlaps(other) for other in used):
            return str(subnet)
    raise Conflict("network.subnets_used_up", f"every subnet of {_POOL} is taken", hint="give one with --subnet")


def network_xml(network: Network) -> str:
    """The libvirt network: NAT, DHCP over all addresses but the host's."""
    subnet = ipaddress.IPv4Network(network.subnet)
    root = ET.Element("network")
    ET.SubElement(root, "name").text = network.name
    ET.SubElement(root, "forward", mode="nat")
    ip = ET.SubElement(root, "ip", address=str(subnet[1]), prefix=str(subnet.prefixlen))
    dhcp = ET.SubElement(ip, "dhcp")
    ET.SubElement(dhcp, "range", start=str(subnet[2]), end=str(subnet[-2]))
    return ET.tostring(root, encoding="unicode")
