# SPDX-License-Identifier: Apache-2.0
"""What a domain's XML says: its UUID and name, the host devices it takes, its interfaces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree import ElementTree

from orchestrator.core.domain_xml.foreign import managed_by, unsafe_parts
from orchestrator.core.errors import InvalidInput
from orchestrator.core.hosts.cpu_place import floating, memory_words
from orchestrator.core.hosts.cpus import parse_cpus

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
    managed_by: str = ""
    unsafe: tuple[str, ...] = ()
    """Both as ``core.domain_xml.foreign`` tells them."""


def read_domain_xml(xml: str) -> DomainText:
    """:raises InvalidInput: ``vm.xml_invalid``"""
    try:
        root = ElementTree.fromstring(xml)  # noqa: S314 - from our own controller or libvirt; expat stops entity bombs
    except ElementTree.ParseError as error:
        raise InvalidInput("vm.xml_invalid", "the VM's definition is not XML", details=str(error)) from error
    if root.tag != "domain":
        raise InvalidInput("vm.xml_invalid", "the VM's definition is not a libvirt domain")
    devices = [_device(address) for address in _device_addresses(root)]
    return DomainText(
        uuid=(root.findtext("uuid") or "").strip().lower(),
        name=(root.findtext("name") or "").strip(),
        devices=tuple(device for device in devices if device),
        interfaces=tuple(target.get("dev", "") for target in root.findall("./devices/interface/target[@dev]")),
        vcpus=_number(root.find("vcpu")),
        memory_mib=_memory_mib(root.find("memory")),
        disks=tuple(_targets(root)),
        affinity=tuple(_affinity(root)),
        memory_words=_memory(root),
        plugs=tuple(_plugs(root)),
        managed_by=managed_by(root),
        unsafe=unsafe_parts(root),
    )


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
    except ValueError:
        return ""
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"
