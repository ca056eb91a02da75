# SPDX-License-Identifier: Apache-2.0
"""Addresses that libvirt's networks keep for their VMs, so that each has its own again after a stop or a reboot.

dnsmasq forgets a lease that has run out, and may give its address to another card. One that is reserved it gives to
nobody else, also inside of its range.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from contextlib import suppress
from ipaddress import IPv4Address
from typing import Any
from xml.etree import ElementTree as ET

import libvirt

_OF_QEMU = "52:54:00:"
_ADD, _DELETE = libvirt.VIR_NETWORK_UPDATE_COMMAND_ADD_LAST, libvirt.VIR_NETWORK_UPDATE_COMMAND_DELETE


def cards_of(definition: str) -> Iterator[tuple[str, str]]:
    """(network, hardware address) of each card of a domain that is on one of libvirt's networks."""
    for card in ET.fromstring(definition).findall("devices/interface"):  # noqa: S314 - libvirt's own
        source, mac = card.find("source[@network]"), card.find("mac")
        if source is not None and mac is not None:
            yield source.get("network", ""), mac.get("address", "").lower()


def cards_there(connection: Any) -> frozenset[str]:
    """Hardware addresses of the cards of all domains of the host."""
    return frozenset(mac for domain in connection.listAllDomains() for _, mac in cards_of(domain.XMLDesc()))


def reserve(network: Any, mac: str, there: Collection[str]) -> None:
    """An address for the card, unless it has one or none is free. Those of cards that are not ``there``
    (:func:`cards_there`) make room.

    What libvirt refuses is left so: the card then has whichever address is free, and its VM starts."""
    dhcp = ET.fromstring(network.XMLDesc()).find("ip/dhcp")  # noqa: S314 - libvirt's own
    if dhcp is None:
        return
    reserved = {host.get("mac", "").lower(): host.get("ip", "") for host in dhcp.findall("host")}
    for gone in [card for card in reserved if card.startswith(_OF_QEMU) and card not in there]:
        _update(network, _DELETE, gone, reserved.pop(gone))
    leased = _leases(network)
    taken = {*reserved.values(), *(address for address, card in leased.items() if card != mac)}
    address = next((one for one in _candidates(dhcp, leased, mac) if one not in taken), None)
    if mac not in reserved and address is not None:
        _update(network, _ADD, mac, address)


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
        return {one["ipaddr"]: (one["mac"] or "").lower() for one in network.DHCPLeases()}
    return {}


def _update(network: Any, command: int, mac: str, address: str) -> None:
    flags = libvirt.VIR_NETWORK_UPDATE_AFFECT_CONFIG
    if network.isActive():
        flags |= libvirt.VIR_NETWORK_UPDATE_AFFECT_LIVE
    host = ET.tostring(ET.Element("host", mac=mac, ip=address), encoding="unicode")
    with suppress(libvirt.libvirtError):
        network.update(command, libvirt.VIR_NETWORK_SECTION_IP_DHCP_HOST, -1, host, flags)
