# SPDX-License-Identifier: Apache-2.0
"""``<domain>``: identity, size, machine, confinement, CPUs and memory, disks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from string import ascii_lowercase
from xml.etree import ElementTree as ET

from orchestrator.core.attachments import hostdev
from orchestrator.core.domain_xml.console import serial_console
from orchestrator.core.domain_xml.display import display
from orchestrator.core.domain_xml.firmware import large_bars, system
from orchestrator.core.domain_xml.guest_agent import guest_agent
from orchestrator.core.domain_xml.interface import interface, nic_hostdev, overlay_interface
from orchestrator.core.errors import InvalidInput
from orchestrator.core.gpu.device import Device
from orchestrator.core.gpu.pci import is_pci_address
from orchestrator.core.hosts.cpus import MAX_CPU, CpuPlace, cpus_text
from orchestrator.core.hosts.domain import BURST_S, DiskLimits, DomainDescription, lower
from orchestrator.core.hosts.pool import file_path, home_of
from orchestrator.core.hosts.volume_key import ids_of
from orchestrator.core.names import is_name, is_uuid
from orchestrator.core.offerings.offering import PAGE_KIB
from orchestrator.core.overlay import is_address
from orchestrator.core.vms.network import MAX_CARDS, short_name, tenant_of
from orchestrator.core.vms.vm import MAX_MEMORY_MIB, MAX_VCPUS, MIN_MEMORY_MIB
from orchestrator.core.vms.volume import is_reader

_MAX_DEVICES = 64
_MAX_DATA = 20
SPARE_PORTS = 4
"""PCIe root ports that nothing is behind when a VM starts: so many volumes and network cards can be attached while it
runs. Each costs the firmware some milliseconds of the boot."""
_MAX_TEXT = 200
_SHOWN = 60
_FILE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}", re.ASCII)
_IMAGE = re.compile(r"[0-9a-f]{64}\.(qcow2|raw)", re.ASCII)


def check_domain(vm: str, domain: DomainDescription) -> None:
    """That no field can mean anything but what it is for. Whose the things are that it names, its host knows.

    :raises InvalidInput: ``vm.domain_invalid``
    """
    tenant, _, name = domain.name.partition(".")
    limits = (domain.disk_limits, *domain.data_limits)
    rules = (
        ("vm", vm, is_uuid(vm)),
        ("name", domain.name, is_name(tenant) and is_name(name)),
        ("tenant", domain.tenant, domain.tenant == tenant),
        ("profile", domain.profile, _is_line(domain.profile)),
        ("vcpus", domain.vcpus, 1 <= domain.vcpus <= MAX_VCPUS),
        ("memory_mib", domain.memory_mib, MIN_MEMORY_MIB <= domain.memory_mib <= MAX_MEMORY_MIB),
        ("volume", domain.volume, _FILE_NAME.fullmatch(domain.volume) is not None),
        ("seed", domain.seed, _FILE_NAME.fullmatch(domain.seed) is not None),
        ("networks", domain.networks, all(_is_network_of(tenant, one) for one in domain.networks)),
        ("networks", domain.more_networks, bool(domain.network or not domain.more_networks)),
        ("networks", "one twice", domain.network not in domain.more_networks),
        ("networks", "one twice", len(set(domain.more_networks)) == len(domain.more_networks) < MAX_CARDS),
        ("ports", domain.ports, set(domain.overlays) <= set(domain.networks)),
        ("ports", domain.ports, all(is_address(port.address) for port in domain.ports)),
        ("devices", len(domain.devices), len(domain.devices) <= _MAX_DEVICES),
        ("data", len(domain.data), len(set(domain.data)) == len(domain.data) <= _MAX_DATA),
        ("data", domain.data, all(_FILE_NAME.fullmatch(one) for one in domain.data)),
        ("cpus", domain.cpus, domain.cpus is None or _is_cpu_place(domain.cpus, domain.vcpus)),
        ("huge pages", domain.cpus, domain.cpus is None or _is_of_pages(domain.cpus, domain.memory_mib)),
        ("firmware", domain.firmware, domain.firmware in {"bios", "uefi"}),
        ("devices", "one twice", len({one.name for one in domain.devices}) == len(domain.devices)),
        ("disk limits", domain.disk_limits, all(each is None or each.problem is None for each in limits)),
        ("disk limits", domain.data_limits, len(domain.data_limits) in {0, len(domain.data)}),
        ("network card's function", domain.nic, domain.nic is None or is_pci_address(domain.nic)),
        ("devices", "one twice", domain.nic not in {one.name for one in domain.devices}),
    )
    for field, value, holds in rules:
        if not holds:
            raise _invalid(field, value)
    for device in domain.devices:
        _check_device(device)


def check_image(image: str | None) -> None:
    """That a disk lies on an image of ours, or is not there yet.

    :raises InvalidInput: ``vm.domain_invalid``
    """
    if image is not None and _IMAGE.fullmatch(image) is None:
        raise _invalid("image", image)


def _check_device(device: Device) -> None:
    for field, address in (("gpu", device.gpu), ("parent", device.parent)):
        if not is_pci_address(address):
            raise _invalid(f"device's {field}", address)
    if device.name != device.parent and not is_uuid(device.name):
        raise _invalid("device's name", device.name)
    for field, text in (("type_name", device.type_name), ("gi_profile", device.gi_profile or "-")):
        if not _is_line(text):
            raise _invalid(f"device's {field}", text)


def _is_cpu_place(place: CpuPlace, vcpus: int) -> bool:
    """Each CPU once, and one for each vCPU or for none; memory is of nodes, or of any."""
    cpus = (*place.shared, *place.pinned)
    return (
        len(set(cpus)) == len(cpus)
        and all(0 <= number <= MAX_CPU for number in (*cpus, *place.nodes))
        and len(place.shared) > 0
        and len(place.pinned) in {0, vcpus}
        and 1 <= place.threads <= max(1, len(place.pinned))
        and vcpus % place.threads == 0
        and len(set(place.nodes)) == len(place.nodes)
        and (place.memory == "any") == (not place.nodes)
        and (place.memory != "preferred" or len(place.nodes) == 1)
    )


def _is_of_pages(place: CpuPlace, memory_mib: int) -> bool:
    """Ordinary ones, or whole huge pages of the nodes that are named."""
    if place.page_kib == 0:
        return place.page_mib == ()
    return (
        place.page_kib in PAGE_KIB.values()
        and place.memory == "strict"
        and memory_mib * 1024 % place.page_kib == 0
        and len(place.page_mib) == len(place.nodes)
        and sum(place.page_mib) == memory_mib
    )


def _is_network_of(tenant: str, network: str) -> bool:
    """The tenant's own, or one of the site."""
    return is_name(short_name(network)) and tenant_of(network) in {None, tenant}


def _is_line(text: str) -> bool:
    """Short, and every character can be seen: also what XML cannot hold is none."""
    return 0 < len(text) <= _MAX_TEXT and text.isprintable()


def _invalid(field: str, value: object) -> InvalidInput:
    return InvalidInput(
        "vm.domain_invalid",
        f"a VM's domain cannot have the {field} {ascii(value)[:_SHOWN]}",
        hint="the controller sends names of its own making: is this one of ours?",
    )


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
    devices.extend(
        overlay_interface(vm_id, card) if network in domain.overlays
        else interface(vm_id, network, card, servers.get(network, ()))
        for card, network in enumerate(domain.networks)
    )  # fmt: skip
    devices.extend((*serial_console(vm_id), guest_agent()))
    devices.extend(hostdev(device) for device in domain.devices)
    if domain.nic is not None:
        devices.append(nic_hostdev(domain.nic))
    if domain.tpm:
        devices.append(_tpm())
    devices.extend(display(domain.firmware))
    ET.SubElement(ET.SubElement(devices, "rng", model="virtio"), "backend", model="random").text = "/dev/urandom"
    devices.extend(root_ports(domain))
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
    if domain.ports:
        owner.set("addresses", " ".join(port.address for port in domain.ports))
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


def root_ports(domain: DomainDescription) -> Iterator[ET.Element]:
    """One for each device that libvirt puts behind a port of its own, which would make no more than those by itself,
    and the spare ones. The screen, the CD-ROM's controller and the TPM are on the root complex."""
    own = len(("disk", "pointer", "random numbers", "guest agent", *domain.data, *domain.networks, *domain.devices))
    yield ET.Element("controller", type="pci", index="0", model="pcie-root")  # libvirt takes it for a port otherwise
    for number in range(own + (domain.nic is not None) + SPARE_PORTS):
        yield ET.Element("controller", type="pci", index=str(number + 1), model="pcie-root-port")


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


def _driver(disk: ET.Element, kind: str) -> None:
    """What its guest trims, or fills with zeros, is a hole in the file and takes no room any more."""
    ET.SubElement(disk, "driver", name="qemu", type=kind, discard="unmap", detect_zeroes="unmap")


def _limits(limits: DiskLimits | None) -> Iterator[ET.Element]:
    """Of a disk, reads and writes together."""
    if limits is None:
        return
    tune = ET.Element("iotune")
    for name, limit, burst in (
        ("total_bytes_sec", limits.bytes_per_s, limits.bytes_per_s_max),
        ("total_iops_sec", limits.iops, limits.iops_max),
    ):
        if limit:
            ET.SubElement(tune, name).text = str(limit)
        if burst:
            ET.SubElement(tune, f"{name}_max").text = str(burst)
            ET.SubElement(tune, f"{name}_max_length").text = str(BURST_S)
    yield tune


def _source(disk: ET.Element, path: str) -> None:
    source = ET.SubElement(disk, "source", file=path)
    for secret in ids_of((path.rpartition("/")[2],)):
        ET.SubElement(ET.SubElement(source, "encryption", format="luks"), "secret", type="passphrase", uuid=secret)


def volume_disk(domain: DomainDescription, storage: str, image: str | None) -> ET.Element:
    """The overlay on the base image. ``image``: as :func:`domain_xml` takes it."""
    disk = ET.Element("disk", type="file", device="disk")
    _driver(disk, "qcow2")
    _source(disk, file_path(storage, "volumes", domain.volume))
    if image is not None:
        disk.append(_image_beneath(home_of(storage, domain.volume), image))
    ET.SubElement(disk, "target", dev="vda", bus="virtio")
    disk.extend(_limits(domain.disk_limits))
    ET.SubElement(disk, "boot", order="1")
    return disk


def data_disks(domain: DomainDescription, storage: str) -> Iterator[ET.Element]:
    """Data volumes, from ``vdb`` on. Raw: no guest can write a header that would be taken for one."""
    own = domain.data_limits or (None,) * len(domain.data)
    for letter, name, limits in zip(ascii_lowercase[1:], domain.data, own, strict=False):
        disk = ET.Element("disk", type="file", device="disk")
        _driver(disk, "raw")
        _source(disk, file_path(storage, "data", name))
        ET.SubElement(disk, "backingStore")
        ET.SubElement(disk, "target", dev=f"vd{letter}", bus="virtio")
        disk.extend(_limits(lower(domain.disk_limits, limits)))
        if is_reader(name):
            ET.SubElement(disk, "readonly")
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


def _image_beneath(home: str, image: str) -> ET.Element:
    """libvirt and QEMU read no header where the chain is written down with its end, which is an empty element."""
    beneath = ET.Element("backingStore", type="file")
    ET.SubElement(beneath, "format", type=image.rpartition(".")[2])
    ET.SubElement(beneath, "source", file=f"{home}/images/{image}")
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
