# SPDX-License-Identifier: Apache-2.0
"""``<domain>``: identity, size, machine, confinement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from xml.etree import ElementTree as ET

from orchestrator.core.attachments import hostdev
from orchestrator.core.domain_xml.console import serial_console
from orchestrator.core.domain_xml.cpus import cpu, cpu_tuning, memory_backing, vcpu
from orchestrator.core.domain_xml.disk import STORAGE, data_disks, seed_disk, volume_disk
from orchestrator.core.domain_xml.firmware import large_bars, system
from orchestrator.core.domain_xml.interface import interface, nic_hostdev
from orchestrator.core.domain_xml.rules import check_domain, check_image
from orchestrator.core.hosts.domain import DomainDescription

METADATA_NAMESPACE = "urn:vgpuctl:vm:1"
"""In which a domain says whose it is."""

ET.register_namespace("vgpuctl", METADATA_NAMESPACE)


def domain_xml(
    vm_id: str,
    domain: DomainDescription,
    *,
    storage: str = STORAGE,
    image: str | None = None,
    dhcp_servers: Mapping[str, Iterable[str]] | None = None,
    bar_window_mib: int = 0,
) -> str:
    """The whole definition, with the drawn devices. ``storage``: the agent's directory. ``image``: the file there that
    its disk lies on (``sha256.format``); None: the disk is not made yet. ``dhcp_servers``: addresses that DHCP answers
    come from, for each of its networks, as the host knows them. ``bar_window_mib``: addresses above 4 GiB that the BARs
    of its whole GPUs need.

    No emulator path and no file of the firmware: whatever is not written here is the host's libvirt's decision.

    :raises InvalidInput: ``vm.domain_invalid``
    """
    check_domain(vm_id, domain)
    check_image(image)
    root = ET.Element("domain", type="kvm")
    ET.SubElement(root, "name").text = domain.name
    ET.SubElement(root, "uuid").text = vm_id
    root.append(_metadata(vm_id, domain))
    ET.SubElement(root, "memory", unit="MiB").text = str(domain.memory_mib)
    root.extend(memory_backing(domain))
    root.append(vcpu(domain))
    root.extend(cpu_tuning(domain))
    root.append(system(vm_id, domain, storage))
    _machine(root, domain)
    devices = ET.SubElement(root, "devices")
    # disks of one bus together: so libvirt keeps them, and compares them as they were written
    devices.extend([volume_disk(domain, storage, image), *data_disks(domain, storage), seed_disk(domain, storage)])
    servers = dhcp_servers or {}
    for card, network in enumerate(domain.networks):
        devices.append(interface(vm_id, network, card, servers.get(network, ())))
    devices.extend(serial_console(vm_id))
    devices.extend(hostdev(device) for device in domain.devices)
    if domain.nic is not None:
        devices.append(nic_hostdev(domain.nic))
    if domain.tpm:
        devices.append(_tpm())
    ET.SubElement(ET.SubElement(devices, "rng", model="virtio"), "backend", model="random").text = "/dev/urandom"
    _nothing_unused(devices)
    ET.SubElement(root, "seclabel", type="dynamic", relabel="yes")
    root.extend(large_bars(domain, bar_window_mib))
    ET.indent(root)
    return ET.tostring(root, encoding="unicode")


def _metadata(vm_id: str, domain: DomainDescription) -> ET.Element:
    metadata = ET.Element("metadata")
    owner = ET.SubElement(metadata, f"{{{METADATA_NAMESPACE}}}vm")
    owner.set("id", vm_id)
    owner.set("tenant", domain.tenant)
    owner.set("profile", domain.profile)
    return metadata


def _tpm() -> ET.Element:
    """The register interface (TIS): the other one's buffer is memory that VFIO cannot map, which QEMU before 7.1 takes
    for an error at every start."""
    element = ET.Element("tpm", model="tpm-tis")
    ET.SubElement(element, "backend", type="emulator", version="2.0")
    return element


def _nothing_unused(devices: ET.Element) -> None:
    """What libvirt would add by itself and no VM of ours can use: each costs a PCI port and a part of the boot.

    VFIO pins all of the guest's memory, so QEMU lets no balloon give any back; without a screen nobody types on USB.
    """
    ET.SubElement(devices, "controller", type="usb", model="none")
    ET.SubElement(devices, "memballoon", model="none")


def _machine(root: ET.Element, domain: DomainDescription) -> None:
    features = ET.SubElement(root, "features")
    ET.SubElement(features, "acpi")
    ET.SubElement(features, "apic")
    # SeaBIOS goes through system management mode for each sector it reads, when there is one; only secure boot needs it
    ET.SubElement(features, "smm", state="off")
    root.append(cpu(domain))
    ET.SubElement(root, "clock", offset="utc")
    ET.SubElement(root, "on_poweroff").text = "destroy"
    ET.SubElement(root, "on_reboot").text = "restart"
    ET.SubElement(root, "on_crash").text = "destroy"
