# SPDX-License-Identifier: Apache-2.0
"""IP addresses of a domain's guest, from whoever on the host knows them.

Among them those that libvirt's filters have learned: the only ones that it knows of cards on bridges of the host, where
another machine answers for DHCP and the host itself may have no address. libvirt keeps them for its own next start and
has no call that tells them. A line each, of which later ones count more: until when (seconds since the epoch; 0: given
back), ``UUID-MAC`` of the card, its address and the server's (src/nwfilter/nwfilter_dhcpsnoop.c).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import libvirt

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
    if not domain.isActive() or not _has_sent(domain, interfaces):
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


def _has_sent(domain: Any, interfaces: Iterable[str]) -> bool:
    """Whether the guest has sent a packet since its start; its interfaces, and their counters, are made at each start.

    virDomainInterfaceStats: eight counters as the guest sees them, the sixth is ``tx_packets``.
    """
    for interface in interfaces:
        try:
            if domain.interfaceStats(interface)[_TX_PACKETS] > 0:
                return True
        except libvirt.libvirtError:
            return True  # a kind of interface without counters
    return False
