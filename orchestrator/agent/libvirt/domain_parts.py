# SPDX-License-Identifier: Apache-2.0
"""What a definition takes of its host: files, networks, devices, and whatever no definition of ours takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from orchestrator.agent.libvirt.domain_devices import OTHER_BUSES, read_domain_xml
from orchestrator.core.domain_xml.console import console_log
from orchestrator.core.domain_xml.firmware import QEMU_NAMESPACE, is_large_bars
from orchestrator.core.domain_xml.foreign import is_unconfined

_NEVER = ("filesystem", "graphics", "shmem", "redirdev", "smartcard", "parallel", "channel")
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
        elif tag == "interface" and (kind != "network" or device.find("source[@network]") is None):
            yield f"interface of type {kind}"
        elif tag in {"serial", "console"} and kind != "pty":
            yield f"{tag} of type {kind}"
        elif any(log.get("file") != kept_in for log in device.iter("log")):
            yield f"{tag} with a log of its own"
        elif tag == "emulator" and not (device.text or "").startswith(_INSTALLED):
            yield "emulator"
        elif tag == "tpm" and not _is_own_tpm(device):
            yield "tpm of another kind"
        elif tag == "rng" and (device.findtext("backend") or _RANDOM[0]) not in _RANDOM:
            yield "rng"


def _is_own_tpm(device: ET.Element) -> bool:
    """An swtpm whose state is where libvirt keeps that of each domain."""
    backend = device.find("backend")
    return backend is not None and backend.get("type") == "emulator" and not len(backend)
