# SPDX-License-Identifier: Apache-2.0
"""``<domain>``: identity, size, machine, confinement, CPUs and memory, disks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from string import ascii_lowercase
from xml.etree import ElementTree as ET

from orchestrator.core.attachments import hostdev
from orchestrator.core.domain_xml.console import serial_console
from orchestrator.core.domain_xml.display import display
from orchestrator.core.domain_xml.firmware import large_bars, system
from orchestrator.core.domain_xml.interface import interface, nic_hostdev
from orchestrator.core.domain_xml.rules import check_domain, check_image
from orchestrator.core.hosts.cpus import cpus_text
from orchestrator.core.hosts.domain import DomainDescription

STORAGE = "/var/lib/vgpuctl-agent"
"""Where the agent keeps volumes and seeds, unless its configuration says otherwise."""
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
    devices.extend(display(domain.firmware))
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

    VFIO pins all of the guest's memory, so QEMU lets no balloon give any back; the screen's keyboard and pointer are on
    other buses than USB.
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


def volume_disk(domain: DomainDescription, storage: str, image: str | None) -> ET.Element:
    """The overlay on the base image. ``image``: as :func:`domain_xml` takes it."""
    disk = ET.Element("disk", type="file", device="disk")
    ET.SubElement(disk, "driver", name="qemu", type="qcow2", discard="unmap")
    ET.SubElement(disk, "source", file=f"{storage}/volumes/{domain.volume}")
    if image is not None:
        disk.append(_image_beneath(storage, image))
    ET.SubElement(disk, "target", dev="vda", bus="virtio")
    ET.SubElement(disk, "boot", order="1")
    return disk


def data_disks(domain: DomainDescription, storage: str) -> Iterator[ET.Element]:
    """Data volumes, from ``vdb`` on. Raw: no guest can write a header that would be taken for one."""
    for letter, name in zip(ascii_lowercase[1:], domain.data, strict=False):
        disk = ET.Element("disk", type="file", device="disk")
        ET.SubElement(disk, "driver", name="qemu", type="raw", discard="unmap")
        ET.SubElement(disk, "source", file=f"{storage}/data/{name}")
        ET.SubElement(disk, "backingStore")
        ET.SubElement(disk, "target", dev=f"vd{letter}", bus="virtio")
        ET.SubElement(disk, "serial").text = name.partition(".")[0][:20]
        yield disk


def seed_disk(domain: DomainDescription, storage: str) -> ET.Element:
    """The NoCloud seed as a CD-ROM."""
    disk = ET.Element("disk", type="file", device="cdrom")
    ET.SubElement(disk, "driver", name="qemu", type="raw")
    ET.SubElement(disk, "source", file=f"{storage}/seeds/{domain.seed}")
    ET.SubElement(disk, "backingStore")
    ET.SubElement(disk, "target", dev="sda", bus="sata")
    ET.SubElement(disk, "readonly")
    return disk


def _image_beneath(storage: str, image: str) -> ET.Element:
    """libvirt and QEMU read no header where the chain is written down with its end, which is an empty element."""
    beneath = ET.Element("backingStore", type="file")
    ET.SubElement(beneath, "format", type=image.rpartition(".")[2])
    ET.SubElement(beneath, "source", file=f"{storage}/images/{image}")
    ET.SubElement(beneath, "backingStore")
    return beneath


def vcpu(domain: DomainDescription) -> ET.Element:
    """vCPUs that float have a set of CPUs that leaves those out that other VMs have alone."""
    element = ET.Element("vcpu", placement="static")
    if domain.cpus is not None and not domain.cpus.pinned:
        element.set("cpuset", cpus_text(domain.cpus.shared))
    element.text = str(domain.vcpus)
    return element


def memory_backing(domain: DomainDescription) -> Iterator[ET.Element]:
    """Huge pages of one size, which QEMU takes all of before the guest begins."""
    if domain.cpus is not None and domain.cpus.page_kib:
        backing = ET.Element("memoryBacking")
        ET.SubElement(ET.SubElement(backing, "hugepages"), "page", size=str(domain.cpus.page_kib), unit="KiB")
        yield backing


def cpu_tuning(domain: DomainDescription) -> Iterator[ET.Element]:
    """A CPU for each vCPU; QEMU's own threads, which would take time from these, run among those that share."""
    place = domain.cpus
    if place is None:
        return
    if place.pinned:
        tune = ET.Element("cputune")
        for number, cpu_of_host in enumerate(place.pinned):
            ET.SubElement(tune, "vcpupin", vcpu=str(number), cpuset=str(cpu_of_host))
        ET.SubElement(tune, "emulatorpin", cpuset=cpus_text(place.shared))
        yield tune
    if place.memory != "any":
        numa = ET.Element("numatune")
        ET.SubElement(numa, "memory", mode=place.memory, nodeset=cpus_text(place.nodes))
        yield numa


def cpu(domain: DomainDescription) -> ET.Element:
    """The host's own model. A guest whose vCPUs are pinned is told which of them are threads of one core."""
    element = ET.Element("cpu", mode="host-passthrough")
    if domain.cpus is not None and domain.cpus.pinned:
        threads = domain.cpus.threads
        cores = str(domain.vcpus // threads)
        ET.SubElement(element, "topology", sockets="1", dies="1", cores=cores, threads=str(threads))
    return element
