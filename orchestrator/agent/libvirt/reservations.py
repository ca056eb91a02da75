# SPDX-License-Identifier: Apache-2.0
"""Addresses and names that libvirt's networks keep for their VMs, so that each has its own again after a stop or a
reboot.

dnsmasq forgets a lease that has run out, and may give its address to another card. One that is reserved it gives to
nobody else, also inside of its range. So with names: a guest that says that it is called like another is not believed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from contextlib import suppress
from ipaddress import IPv4Address
from typing import Any
from xml.etree import ElementTree as ET

import libvirt

from orchestrator.core.names import is_name

_OF_QEMU = "52:54:00:"
_ADD, _DELETE = libvirt.VIR_NETWORK_UPDATE_COMMAND_ADD_LAST, libvirt.VIR_NETWORK_UPDATE_COMMAND_DELETE


def cards_of(definition: str) -> Iterator[tuple[str, str]]:
    """(network, hardware address) of each card of a domain that is on one of libvirt's networks."""
    for card in ET.fromstring(definition).findall("devices/interface"):  # noqa: S314 - libvirt's own
        source, mac = card.find("source[@network]"), card.find("mac")
        if source is not None and mac is not None:
            yield source.get("network", ""), mac.get("address", "").lower()


def name_of(definition: str) -> str | None:
    """Of a domain of a tenant's VM, what others of the tenant call it. None: it is called otherwise, or libvirt does
    not take it as a host's name."""
    tenant, _, name = ET.fromstring(definition).findtext("name", "").rpartition(".")  # noqa: S314 - libvirt's own
    return name if tenant and is_name(name) and name[0].isalpha() else None


def cards_there(connection: Any) -> frozenset[str]:
    """Hardware addresses of the cards of all domains of the host."""
    return frozenset(mac for domain in connection.listAllDomains() for _, mac in cards_of(domain.XMLDesc()))


def reserve(network: Any, mac: str, macs_in_use: Collection[str], name: str | None = None) -> None:
    """An address for the card, unless it has one or none is free, and its ``name`` where the network has a DNS domain
    and no other card is called so.
    Those of cards that are not ``there`` (:func:`cards_there`) make room.

    What libvirt refuses is left so: the card then has whichever address is free, and its VM starts."""
    root = ET.fromstring(network.XMLDesc())  # noqa: S314 - libvirt's own
    dhcp = root.find("ip/dhcp")
    if dhcp is None:
        return
    reserved = {host.get("mac", "").lower(): host.get("ip", "") for host in dhcp.findall("host")}
    for gone in [card for card in reserved if card.startswith(_OF_QEMU) and card not in macs_in_use]:
        _update(network, _DELETE, mac=gone, ip=reserved.pop(gone))
    names = {host.get("name") for host in dhcp.findall("host") if host.get("mac", "").lower() in reserved}
    named = {} if name is None or name in names or root.find("domain") is None else {"name": name}
    leased = _leases(network)
    taken = {*reserved.values(), *(address for address, card in leased.items() if card != mac)}
    address = next((candidate for candidate in _candidates(dhcp, leased, mac) if candidate not in taken), None)
    if mac not in reserved and address is not None:
        _update(network, _ADD, mac=mac, ip=address, **named)


def _candidates(dhcp: ET.Element, leased: dict[str, str], mac: str) -> Iterator[str]:
    """What it has now, then all of the ranges, from where its hardware address falls."""
    yield from (address for address, card in leased.items() if card == mac)
    for span in dhcp.findall("range"):
        first, last = IPv4Address(span.get("start", "")), IPv4Address(span.get("end", ""))
        count = int(last) - int(first) + 1
        offset = int(hashlib.sha256(mac.encode()).hexdigest(), 16)
        yield from (str(first + (offset + number) % count) for number in range(count))


def _leases(network: Any) -> dict[str, str]:
    """Address → hardware address of those that have not run out; none where libvirt does not tell."""
    with suppress(libvirt.libvirtError):
        return {lease["ipaddr"]: (lease["mac"] or "").lower() for lease in network.DHCPLeases()}
    return {}


def _update(network: Any, command: int, **host: str) -> None:
    """``host``: attributes of the reservation."""
    flags = libvirt.VIR_NETWORK_UPDATE_AFFECT_CONFIG
    if network.isActive():
        flags |= libvirt.VIR_NETWORK_UPDATE_AFFECT_LIVE
    text = ET.tostring(ET.Element("host", host), encoding="unicode")
    with suppress(libvirt.libvirtError):
        network.update(command, libvirt.VIR_NETWORK_SECTION_IP_DHCP_HOST, -1, text, flags)
