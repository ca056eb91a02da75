# SPDX-License-Identifier: Apache-2.0
"""What a domain's XML says: its UUID and name, the host devices it takes, its interfaces; and what it takes of its host
else: files, networks, and whatever no definition of ours takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.etree import ElementTree as ET

from orchestrator.core.domain_xml.console import console_log
from orchestrator.core.domain_xml.display import is_own_graphics
from orchestrator.core.domain_xml.domain import METADATA_NAMESPACE
from orchestrator.core.domain_xml.firmware import QEMU_NAMESPACE, is_large_bars
from orchestrator.core.domain_xml.foreign import is_unconfined, managed_by, unsafe_parts
from orchestrator.core.domain_xml.guest_agent import is_guest_agent
from orchestrator.core.domain_xml.interface import is_overlay
from orchestrator.core.errors import InvalidInput
from orchestrator.core.hosts.cpus import floating, memory_words, parse_cpus
from orchestrator.core.overlay import is_address

OTHER_BUSES = ("usb", "scsi", "scsi_host")
"""Their addresses have numbers too, and none of them is of a PCI function."""


@dataclass(frozen=True)
class Plug:
    """An interface of a running domain that belongs into a bridge."""

    network: str
    interface: str
    """Its name on the host."""
    isolated: bool
    """Its port passes nothing to others like it."""


@dataclass(frozen=True)
class DomainText:
    uuid: str
    name: str
    devices: tuple[str, ...]
    """UUIDs and PCI addresses of the host's devices that it has, in the order of the XML: hostdevs, interfaces and NVMe
    disks that are PCI functions."""
    interfaces: tuple[str, ...]
    """Names on the host of its network interfaces; a domain that does not run has none."""
    vcpus: int | None = None
    memory_mib: int | None = None
    disks: tuple[str, ...] = ()
    """Targets (``vda``) of its disks; media that can be taken out are none."""
    affinity: tuple[str, ...] = ()
    """As ``core.cpu_place.CpuPlace.affinity`` has it; none: its vCPUs run on any CPU."""
    memory_words: str = "any"
    """As ``core.cpu_place.CpuPlace.memory_words`` has it."""
    plugs: tuple[Plug, ...] = ()
    """Of one that runs: its interfaces on libvirt networks that are bridges."""
    port_addresses: tuple[str, ...] = ()
    """On networks of kind ovn, as it was defined."""
    managed_by: str = ""
    unsafe: tuple[str, ...] = ()
    """Both as ``core.domain_xml.foreign`` tells them."""
    free_ports: int = 0
    """PCIe root ports that nothing is behind."""


def read_domain_xml(xml: str) -> DomainText:
    """:raises InvalidInput: ``vm.xml_invalid``"""
    try:
        root = ElementTree.fromstring(xml)  # noqa: S314 - from our own controller or libvirt; expat stops entity bombs
    except ElementTree.ParseError as error:
        raise InvalidInput("vm.xml_invalid", "the VM's definition is not XML", details=str(error)) from error
    if root.tag != "domain":
        raise InvalidInput("vm.xml_invalid", "the VM's definition is not a libvirt domain")
    return DomainText(
        uuid=(root.findtext("uuid") or "").strip().lower(),
        name=(root.findtext("name") or "").strip(),
        devices=tuple(map(_device, _device_addresses(root))),
        interfaces=tuple(target.get("dev", "") for target in root.findall("./devices/interface/target[@dev]")),
        vcpus=_number(root.find("vcpu")),
        memory_mib=_memory_mib(root.find("memory")),
        disks=tuple(_targets(root)),
        affinity=tuple(_affinity(root)),
        memory_words=_memory(root),
        plugs=tuple(_plugs(root)),
        port_addresses=tuple(_port_addresses(root)),
        managed_by=managed_by(root),
        unsafe=unsafe_parts(root),
        free_ports=_free_ports(root),
    )


def _free_ports(root: ElementTree.Element) -> int:
    """A port's index is the number of the bus behind it."""
    ports = root.findall("./devices/controller[@model='pcie-root-port']")
    used = {_bus(address.get("bus", "")) for address in root.findall("./devices/*/address[@type='pci']")}
    return sum(_bus(port.get("index", "")) not in used for port in ports)


def _bus(text: str) -> int | None:
    """As libvirt writes it: a bus in hexadecimal with ``0x``, an index in decimal."""
    try:
        return int(text, 0)
    except ValueError:
        return None


def _device_addresses(root: ElementTree.Element) -> Iterator[ElementTree.Element]:
    """A function that libvirt took out of a network's pool stands in a running domain's as in one that names it."""
    for device in root.findall("./devices/*"):
        kind = device.get("type")
        if device.tag == "hostdev" and kind not in OTHER_BUSES:
            yield from device.findall("./source/address")
        elif device.tag == "interface":
            yield from device.findall("./source/address[@type='pci']")
        elif device.tag == "disk":  # the NVMe disk itself, or what lies beneath
            yield from device.findall(".//source/address")


def _plugs(root: ElementTree.Element) -> Iterator[Plug]:
    for interface in root.findall("./devices/interface[@type='network']"):
        source, target, port = (interface.find(name) for name in ("source", "target", "port"))
        if source is not None and target is not None and source.get("bridge") and target.get("dev"):
            isolated = port is not None and port.get("isolated") == "yes"
            yield Plug(network=source.get("network", ""), interface=target.get("dev", ""), isolated=isolated)


def _port_addresses(root: ElementTree.Element) -> Iterator[str]:
    for owner in root.findall(f"./metadata/{{{METADATA_NAMESPACE}}}vm"):
        yield from filter(is_address, owner.get("addresses", "").split())


def _number(element: ElementTree.Element | None) -> int | None:
    text = (element.text or "").strip() if element is not None else ""
    return int(text) if text.isascii() and text.isdigit() else None


def _affinity(root: ElementTree.Element) -> Iterator[str]:
    """libvirt tells of each vCPU that has CPUs of its own, and of the domain for all the others."""
    vcpu = root.find("vcpu")
    everyone = "" if vcpu is None else vcpu.get("cpuset", "")
    rest = floating(parse_cpus(everyone)) if everyone else "any"
    pins = {pin.get("vcpu", ""): pin.get("cpuset", "") for pin in root.findall("./cputune/vcpupin")}
    if pins:
        yield from (pins.get(str(number), rest) for number in range(_number(vcpu) or 0))
    elif everyone:
        yield rest


def _memory(root: ElementTree.Element) -> str:
    """libvirt keeps the size of pages in KiB, and none where huge pages of its own choice were asked for."""
    huge, where = root.find("./memoryBacking/hugepages"), root.find("./numatune/memory")
    page = None if huge is None else huge.find("page")
    size = _number_of("" if page is None else page.get("size", ""))
    pages = "" if huge is None or size else "huge pages"
    mode, nodes = ("any", "") if where is None else (where.get("mode", "strict"), where.get("nodeset", ""))
    if where is not None and where.get("placement") == "auto":
        return f"{pages}, {mode}, placed by numad".removeprefix(", ")
    return pages or memory_words(size, mode, nodes)


def _number_of(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0


def _memory_mib(element: ElementTree.Element | None) -> int | None:
    """libvirt answers in KiB, whatever unit the definition was written in; rounded up."""
    number = _number(element)
    if element is None or number is None or element.get("unit", "KiB") != "KiB":
        return None
    return -(-number // 1024)


def _targets(root: ElementTree.Element) -> Iterator[str]:
    for disk in root.findall("./devices/disk"):
        target = disk.find("target")
        if disk.get("device", "disk") == "disk" and target is not None:
            yield target.get("dev", "")


def _device(address: ElementTree.Element) -> str:
    uuid = address.get("uuid")
    if uuid is not None:
        return uuid.lower()
    try:
        domain, bus, slot, function = (int(address.get(part, "0"), 0) for part in ("domain", "bus", "slot", "function"))
    except ValueError as error:  # libvirt may read it nevertheless: 0101 is octal there
        raise InvalidInput(
            "vm.xml_invalid", "the VM's definition has a host device at an address that cannot be read",
            details=str(address.attrib),
        ) from error  # fmt: skip
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"


_NEVER = ("filesystem", "shmem", "redirdev", "smartcard", "parallel")
"""Devices that reach files, sockets or addresses of the host."""
_ON_THE_HOST = ("kernel", "initrd", "dtb", "acpi")
_RANDOM = ("/dev/urandom", "/dev/random")
_INSTALLED = "/usr/"
"""Where distributions install QEMU and firmware; libvirt writes their paths into every definition."""
_COMMAND_LINE = f"{{{QEMU_NAMESPACE}}}commandline"


@dataclass(frozen=True)
class DomainParts:
    devices: tuple[str, ...]
    """UUIDs and PCI addresses of its hostdevs."""
    files: tuple[str, ...]
    """Paths of its disks and media, and of its UEFI variables."""
    images: tuple[tuple[str, str], ...]
    """Disk and the image beneath it, where that is written down: paths."""
    networks: tuple[str, ...]
    """Names of libvirt networks."""
    others: tuple[str, ...]
    """What no definition of ours has, for people."""


def parts_of(xml: str) -> DomainParts:
    """:raises InvalidInput: ``vm.xml_invalid``"""
    devices = read_domain_xml(xml).devices
    root = ET.fromstring(xml)  # noqa: S314 - libvirt's, or written by ourselves
    disks = root.findall("./devices/disk")
    return DomainParts(
        devices=devices,
        files=(
            *(source.get("file", "") for disk in disks for source in disk.findall("source[@file]")),
            *_variables(root),
        ),
        images=tuple(_images(disks)),
        networks=tuple(source.get("network", "") for source in root.findall("./devices/interface/source[@network]")),
        others=tuple(dict.fromkeys((*_others(root), *_other_disks(disks), *_other_devices(root)))),
    )


def _others(root: ET.Element) -> Iterator[str]:
    spaced = (child for child in root if child.tag.startswith("{"))  # qemu:commandline and its like
    yield from (element.tag for element in spaced if element.tag != _COMMAND_LINE or not is_large_bars(element))
    yield from _other_firmware(root)
    yield from (f"os/{tag}" for tag in _ON_THE_HOST if root.find(f"./os/{tag}") is not None)
    for label in root.findall("seclabel"):
        if is_unconfined(label):
            yield "seclabel"


def _variables(root: ET.Element) -> Iterator[str]:
    """libvirt says it as text, or as a disk's source."""
    for nvram in root.findall("./os/nvram"):
        source = nvram.find("source")
        path = (nvram.text or "").strip() if source is None else source.get("file", "")
        yield from (path,) if path else ()


def _other_firmware(root: ET.Element) -> Iterator[str]:
    """Firmware that runs before the guest is one that is installed, and nobody's to write; variables are in a file and
    made out of installed ones."""
    for loader in root.findall("./os/loader"):
        path = (loader.text or "").strip()
        if not path.startswith(_INSTALLED) or loader.get("readonly", "no") != "yes" or loader.get("secure") == "yes":
            yield "os/loader"
    for nvram in root.findall("./os/nvram"):
        if nvram.get("type", "file") != "file" or not nvram.get("template", _INSTALLED).startswith(_INSTALLED):
            yield "os/nvram"


def _other_disks(disks: list[ET.Element]) -> Iterator[str]:
    for disk in disks:
        source = disk.find("source")
        if source is not None and (disk.get("type") != "file" or "file" not in source.attrib):
            yield f"disk of type {disk.get('type')}"
        if disk.find("mirror") is not None or not _ends_as_ours(disk):
            yield "disk with a backing store of its own"


def _images(disks: list[ET.Element]) -> Iterator[tuple[str, str]]:
    for disk in disks:
        source = disk.find("source")
        path = "" if source is None else source.get("file", "")
        yield from ((path, beneath.get("file", "")) for beneath in disk.iterfind(".//backingStore/source"))


def _ends_as_ours(disk: ET.Element) -> bool:
    """One file is beneath it, of the format that its name says, and nothing beneath that; or nothing is; or libvirt is
    to look, as in definitions from before."""
    beneath = disk.find("backingStore")
    if beneath is None or not len(beneath):
        return True
    if sorted(part.tag for part in beneath) != ["backingStore", "format", "source"]:
        return False
    parts = {part.tag: part for part in beneath}
    source = parts["source"]
    return (
        beneath.get("type") == "file"
        and (set(source.attrib), len(source), len(parts["backingStore"])) == ({"file"}, 0, 0)
        and parts["format"].get("type") == source.attrib["file"].rpartition(".")[2]
    )


def _other_devices(root: ET.Element) -> Iterator[str]:
    kept_in = console_log(root.findtext("uuid") or "")
    for device in root.findall("./devices/*"):
        tag, kind = device.tag, device.get("type")
        if tag in _NEVER or tag.startswith("{"):
            yield tag
        elif tag == "hostdev" and (device.get("mode", "subsystem") != "subsystem" or kind in OTHER_BUSES):
            yield f"hostdev of type {kind}"
        elif tag == "interface" and not (_is_on_network(device) or is_overlay(device, root.findtext("uuid") or "")):
            yield f"interface of type {kind}"
        elif tag in {"serial", "console"} and kind != "pty":
            yield f"{tag} of type {kind}"
        elif any(log.get("file") != kept_in for log in device.iter("log")):
            yield f"{tag} with a log of its own"
        elif tag == "channel" and not is_guest_agent(device):
            yield tag
        elif tag == "emulator" and not (device.text or "").startswith(_INSTALLED):
            yield "emulator"
        elif tag == "graphics" and not is_own_graphics(device):
            yield "graphics that somebody reaches"
        elif tag == "tpm" and not _is_own_tpm(device):
            yield "tpm of another kind"
        elif tag == "rng" and (device.findtext("backend") or _RANDOM[0]) not in _RANDOM:
            yield "rng"


def _is_on_network(interface: ET.Element) -> bool:
    return interface.get("type") == "network" and interface.find("source[@network]") is not None


def _is_own_tpm(device: ET.Element) -> bool:
    """An swtpm whose state is where libvirt keeps that of each domain."""
    backend = device.find("backend")
    return backend is not None and backend.get("type") == "emulator" and not len(backend)
