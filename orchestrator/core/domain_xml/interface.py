# SPDX-License-Identifier: Apache-2.0
"""``<interface>``: virtio on a libvirt network, with a filter against spoofing that a guest cannot remove."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from xml.etree import ElementTree as ET

from orchestrator.core.attachments.functions import pci_source
from orchestrator.core.overlay import INTEGRATION_BRIDGE, port_id
from orchestrator.core.vms.network import MAX_CARDS, tenant_of

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


_PREFIX = "52:54:00"
"""The range of QEMU's own, locally administered, addresses."""


def mac_address(vm_id: str, card: int = 0) -> str:
    """Fixed for the VM's life, so that its address and the guest's configuration survive a restart. ``card``: which of
    its network cards, from 0."""
    digest = hashlib.sha256(f"mac {vm_id}{f' {card}' if card else ''}".encode()).hexdigest()
    return f"{_PREFIX}:{digest[:2]}:{digest[2:4]}:{digest[4:6]}"


def nic_hostdev(function: str) -> ET.Element:
    """The virtual function of a network card. The agent binds it and sets its hardware address, not libvirt: it alone
    has written down what there was before, and InfiniBand has no such address."""
    element = ET.Element("hostdev", mode="subsystem", type="pci", managed="no")
    ET.SubElement(element, "driver", name="vfio")
    element.append(pci_source(function))
    return element


def interface(vm_id: str, network: str, card: int, dhcp_servers: Iterable[str]) -> ET.Element:
    """One network card. ``dhcp_servers``: whose answers alone give it an address; none: any that reaches it."""
    element = ET.Element("interface", type="network")
    ET.SubElement(element, "mac", address=mac_address(vm_id, card))
    ET.SubElement(element, "source", network=network)
    ET.SubElement(element, "model", type="virtio")
    if tenant_of(network) is None:  # of many tenants: to its host and beyond, to no other VM
        ET.SubElement(element, "port", isolated="yes")
    guard = ET.SubElement(element, "filterref", filter=GUARD)
    # Else the address of a guest's first packet is taken for its own, and may be another VM's.
    ET.SubElement(guard, "parameter", name="CTRL_IP_LEARNING", value="dhcp")
    for server in dhcp_servers:
        ET.SubElement(guard, "parameter", name="DHCPSERVER", value=server)
    return element


def overlay_interface(vm_id: str, card: int) -> ET.Element:
    """One network card on a network of kind ovn: which one, and what the guest may send there, OVN knows of the port
    with that id. The bridge is Open vSwitch's, where libvirt's filters do nothing."""
    element = ET.Element("interface", type="bridge")
    ET.SubElement(element, "mac", address=mac_address(vm_id, card))
    ET.SubElement(element, "source", bridge=INTEGRATION_BRIDGE)
    virtual_port = ET.SubElement(element, "virtualport", type="openvswitch")
    ET.SubElement(virtual_port, "parameters", interfaceid=port_id(vm_id, card))
    ET.SubElement(element, "model", type="virtio")
    return element


def is_overlay(interface: ET.Element, vm_id: str) -> bool:
    """Whether a definition's interface is such a one of that VM."""
    parameters = interface.find("virtualport[@type='openvswitch']/parameters")
    return (
        interface.get("type") == "bridge"
        and interface.find(f"source[@bridge='{INTEGRATION_BRIDGE}']") is not None
        and parameters is not None
        and parameters.get("interfaceid") in {port_id(vm_id, card) for card in range(MAX_CARDS)}
    )
