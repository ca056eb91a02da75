# SPDX-License-Identifier: Apache-2.0
"""``<os>`` and what UEFI needs besides: which firmware, where its variables are, room for the BARs of whole GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from xml.etree import ElementTree as ET

from orchestrator.core.hosts.domain import DomainDescription

QEMU_NAMESPACE: Final = "http://libvirt.org/schemas/domain/qemu/1.0"
_WINDOW: Final = "name=opt/ovmf/X-PciMmio64Mb,string="
"""OVMF reads it in MiB (OvmfPkg/Library/PlatformInitLib/MemDetect.c). libvirt keeps the name to itself, so that
``<sysinfo type='fwcfg'>`` cannot say it."""
DEFAULT_WINDOW_MIB: Final = 32 * 1024
"""Addresses above 4 GiB that OVMF keeps for BARs by itself."""
MAX_WINDOW_MIB: Final = 1 << 32
"""4 PiB: more than any processor addresses."""

ET.register_namespace("qemu", QEMU_NAMESPACE)


def nvram_file(vm_id: str) -> str:
    """Name of a VM's UEFI variables in the agent's directory of those."""
    return f"{vm_id}.fd"


def system(vm_id: str, domain: DomainDescription, storage: str) -> ET.Element:
    """The host's libvirt finds the firmware by what it can do; which file that is differs between distributions. It
    makes the variables out of the firmware's own at the first start."""
    element = ET.Element("os")
    ET.SubElement(element, "type", arch="x86_64", machine="q35").text = "hvm"
    if domain.firmware == "uefi":
        element.set("firmware", "efi")
        ET.SubElement(ET.SubElement(element, "firmware"), "feature", enabled="no", name="secure-boot")
        ET.SubElement(element, "nvram").text = f"{storage}/nvram/{nvram_file(vm_id)}"
    return element


def large_bars(domain: DomainDescription, window_mib: int) -> Iterator[ET.Element]:
    """``window_mib``: addresses that the BARs of its whole GPUs need, from :func:`window_for`."""
    if domain.firmware == "uefi" and window_mib > DEFAULT_WINDOW_MIB:
        line = ET.Element(f"{{{QEMU_NAMESPACE}}}commandline")
        for word in ("-fw_cfg", f"{_WINDOW}{window_mib}"):
            ET.SubElement(line, f"{{{QEMU_NAMESPACE}}}arg", value=word)
        yield line


def is_large_bars(element: ET.Element) -> bool:
    """Whether a ``commandline`` says what :func:`large_bars` does and nothing else."""
    words = [argument.get("value", "") for argument in element]
    if (
        any(argument.tag != f"{{{QEMU_NAMESPACE}}}arg" for argument in element)
        or len(words) != 2
        or words[0] != "-fw_cfg"
    ):
        return False
    number = words[1].removeprefix(_WINDOW)
    return words[1].startswith(_WINDOW) and number.isascii() and number.isdigit()


def window_for(bar_bytes: list[int]) -> int:
    """MiB of addresses for devices whose 64-bit BARs take so much each: a power of two, as OVMF aligns the window to
    its size. A device behind a port of its own takes one as well, as its largest BAR is aligned to itself."""
    each = sum(1 << (size - 1).bit_length() for size in bar_bytes if size > 0)
    return min(MAX_WINDOW_MIB, 1 << max(0, (each >> 20) - 1).bit_length()) if each else 0
