# SPDX-License-Identifier: Apache-2.0
"""IP addresses of a domain's guest, from whoever on the host knows them, and those that networks keep for their VMs, so
that each has its own again after a stop or a reboot.

Among them those that libvirt's filters have learned: the only ones that it knows of cards on bridges of the host, where
another machine answers for DHCP and the host itself may have no address. libvirt keeps them for its own next start and
has no call that tells them. A line each, of which later ones count more: until when (seconds since the epoch; 0: given
back), ``UUID-MAC`` of the card, its address and the server's (src/nwfilter/nwfilter_dhcpsnoop.c).

dnsmasq forgets a lease that has run out, and may give its address to another card. One that is reserved it gives to
nobody else, also inside of its range. So with names: a guest that says that it is called like another is not believed.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import libvirt

from orchestrator.core.names import is_name
from orchestrator.core.vms.network import dhcp_addresses

LEARNED = Path("/run/libvirt/network/nwfilter.leases")
_UUID = 36
_MAX_DIGITS = 20
_TX_PACKETS = 5


def learned_of(file: Path, vm: str) -> frozenset[tuple[str, str]]:
    """(MAC, address) of each card of the VM that has one now; none where libvirt has learned nothing."""
    try:
        text = file.read_text(encoding="ascii", errors="replace")
    except OSError:
        return frozenset()
    ends: dict[tuple[str, str], int] = {}
    for until, uuid, mac, address in _lines(text):
        if uuid == vm:
            ends[mac, address] = until
    now = time.time()
    return frozenset(card for card, until in ends.items() if until >= now)


def _lines(text: str) -> Iterator[tuple[int, str, str, str]]:
    """Those that are whole: the last one may be just being written."""
    for line in text.splitlines():
        words = line.split()
        if len(words) == 4 and words[0].isdecimal() and len(words[0]) <= _MAX_DIGITS and _is_address(words[2]):
            key = words[1].lower()
            yield int(words[0]), key[:_UUID], key[_UUID + 1 :], words[2]


def _is_address(text: str) -> bool:
    try:
        return str(IPv4Address(text)) == text
    except ValueError:
        return False


def addresses_of(domain: Any, interfaces: Iterable[str], snooped: Path) -> tuple[str, ...]:
    """Of libvirt's own leases first, as the host reaches those; of cards without one what the filters learned; of
    the host's ARP table where the guest took no lease. ``snooped``: the filters' file.

    All outlive the guest's last run, so nothing is believed until it has sent a packet in this one.
    """
    if not has_sent(domain, interfaces):
        return ()
    leased = _told_by(domain, libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_LEASE)
    cards = {mac for mac, _ in leased}
    learned = learned_of(snooped, domain.UUIDString().lower())
    more = {card for card in learned if card[0] not in cards}
    if not leased and not more:
        more = _told_by(domain, libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_ARP)
    return (*_sorted(leased), *_sorted(more))


def _sorted(cards: Iterable[tuple[str, str]]) -> list[str]:
    return sorted({address for _, address in cards})


def _told_by(domain: Any, source: int) -> set[tuple[str, str]]:
    """(MAC, address) by one of libvirt's sources."""
    try:
        interfaces = domain.interfaceAddresses(source) or {}
    except libvirt.libvirtError:
        return set()  # a hypervisor or version without this source
    return {
        (str(interface["hwaddr"]).lower(), entry["addr"])
        for interface in interfaces.values()
        for entry in interface["addrs"] or ()
    }


def has_sent(domain: Any, interfaces: Iterable[str]) -> bool:
    """Whether the guest has sent a packet since its start; its interfaces, and their counters, are made at each start.

    virDomainInterfaceStats: eight counters as the guest sees them, the sixth is ``tx_packets``.
    """
    for interface in interfaces if domain.isActive() else ():
        try:
            if domain.interfaceStats(interface)[_TX_PACKETS] > 0:
                return True
        except libvirt.libvirtError:
            return True  # a kind of interface without counters
    return False


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
        yield from dhcp_addresses(span.get("start", ""), span.get("end", ""), mac)


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
