# SPDX-License-Identifier: Apache-2.0
"""IP addresses of a domain's guest, from whoever on the host knows them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import libvirt

from orchestrator.agent.libvirt.learned import learned_of

_TX_PACKETS = 5


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
