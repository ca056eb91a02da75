# SPDX-License-Identifier: Apache-2.0
"""The filter that every network card of a VM is under: what a guest may send, and what its host passes on to it."""

from __future__ import annotations

from xml.etree import ElementTree as ET

GUARD = "vgpuctl-guest"
"""Its name on hosts."""
_UUID = "5f8a0c51-4a0e-5d35-9f0c-6f5b7e2f1c9d"
"""The same on every host: by it libvirt knows a newer text for the same filter."""
_FIRST = "-1000"
"""Before everything else that libvirt writes into the root chain."""


def guard_xml() -> str:
    """libvirt's own ``clean-traffic`` (the card's MAC and IP address alone, no other ethertype than IPv4 and ARP: no
    IPv6, so no router advertisement, and no VLAN tag), and before it what that lets through: answers of a DHCP server.
    A guest may send UDP from 0.0.0.0 to get an address, and from its own address everything."""
    root = ET.Element("filter", name=GUARD, chain="root")
    ET.SubElement(root, "uuid").text = _UUID
    rule = ET.SubElement(root, "rule", action="drop", direction="out", priority=_FIRST)
    ET.SubElement(rule, "ip", protocol="udp", srcportstart="67")
    ET.SubElement(root, "filterref", filter="clean-traffic")
    return ET.tostring(root, encoding="unicode")
