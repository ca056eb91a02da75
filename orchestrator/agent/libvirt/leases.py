# SPDX-License-Identifier: Apache-2.0
"""A VM's addresses: DHCP leases that it took since it was started, or else what the host's ARP table says.

A lease outlives the VM's run, so after a stop and a start the old one is still there while the guest is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from xml.etree import ElementTree

import libvirt

Lease = tuple[str, int]
"""Address, and when it ends (seconds since the epoch; 0: never)."""


class Addresses:
    def __init__(self) -> None:
        self._before_start: dict[str, frozenset[Lease]] = {}

    def starting(self, domain: Any) -> None:
        """Called before the domain is started: the leases that are there now say nothing about its guest."""
        self._before_start[domain.UUIDString()] = frozenset(_leases(domain))

    def of(self, domain: Any) -> tuple[str, ...]:
        """Sorted; empty while the guest has not asked for an address."""
        if not domain.isActive():
            return ()
        leases = _leases(domain)
        if leases:
            return fresh(leases, self._before_start.get(domain.UUIDString(), frozenset()))
        return _from_arp(domain)


def fresh(leases: Iterable[Lease], before: frozenset[Lease]) -> tuple[str, ...]:
    """Addresses of the leases that were taken or renewed since ``before``; one without an end cannot tell."""
    return tuple(sorted({address for address, end in leases if end == 0 or (address, end) not in before}))


def _leases(domain: Any) -> list[Lease]:
    connection = domain.connect()
    found: list[Lease] = []
    definition = ElementTree.fromstring(domain.XMLDesc())  # noqa: S314  libvirt wrote it
    for interface in definition.findall("./devices/interface[@type='network']"):
        network, mac = interface.find("source"), interface.find("mac")
        if network is not None and mac is not None:
            found += map(_lease, _of_network(connection, network.get("network", ""), mac.get("address", "")))
    return found


def _of_network(connection: Any, network: str, mac: str) -> list[Mapping[str, Any]]:
    try:
        return list(connection.networkLookupByName(network).DHCPLeases(mac))
    except libvirt.libvirtError:
        return []  # no such network, or one without libvirt's DHCP server


def _lease(entry: Mapping[str, Any]) -> Lease:
    return str(entry["ipaddr"]), int(entry["expirytime"])


def _from_arp(domain: Any) -> tuple[str, ...]:
    try:
        interfaces = domain.interfaceAddresses(libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_ARP) or {}
    except libvirt.libvirtError:
        return ()  # a hypervisor or version without this source
    return tuple(sorted({entry["addr"] for interface in interfaces.values() for entry in interface["addrs"] or ()}))
