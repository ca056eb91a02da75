# SPDX-License-Identifier: Apache-2.0
"""What a definition that somebody else wrote tells: who goes on changing the domain, and what no VM of ours has."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree as ET

from orchestrator.core.domain_xml.domain import METADATA_NAMESPACE
from orchestrator.core.domain_xml.firmware import is_large_bars
from orchestrator.core.domain_xml.foreign_devices import unsafe_device

_CONTROLLERS = {
    "openstack": "nova", "ovirt": "oVirt", "rhev": "oVirt", "kubevirt": "KubeVirt", "harvester": "Harvester",
    "opennebula": "OpenNebula", "cloudstack": "CloudStack", "proxmox": "Proxmox", "unraid": "Unraid",
}  # fmt: skip
"""By a word in the namespace of its metadata or in what it has the firmware say of the machine."""
_DESCRIBE = ("libosinfo.org", "cockpit-project", "gnome.org", "libvirt.org", METADATA_NAMESPACE)
"""Whose metadata only describe a domain: programs that people make one with by hand. A namespace of anybody else is
of a program that looks for it again."""
_MACHINE = ("bios", "system", "baseBoard", "chassis")
_DESCRIBES_QEMU = "deprecation"
_REAL_TIME = ("fifo", "rr")
"""Threads of QEMU with one of these go before everything else of the host."""
_MAX_NAME = 60


def managed_by(root: ET.Element) -> str:
    """The other controller that holds the domain; empty: none that says so. ``root``: of libvirt's definition."""
    for child in root.findall("./metadata/*"):
        namespace = child.tag[1:].partition("}")[0] if child.tag.startswith("{") else child.get("xmlns", child.tag)
        if not any(word in namespace for word in _DESCRIBE):
            return _known(namespace) or _site(namespace)[:_MAX_NAME]
    told = (_known(entry.text or "") for part in _MACHINE for entry in root.findall(f"./sysinfo/{part}/entry"))
    return next((name for name in told if name), "")


def _site(namespace: str) -> str:
    """``https://example.org/schema/1``: ``example.org``."""
    return namespace.partition("://")[2].partition("/")[0] or namespace


def _known(text: str) -> str:
    return next((name for word, name in _CONTROLLERS.items() if word in text.lower()), "")


def unsafe_parts(root: ET.Element) -> tuple[str, ...]:
    """What it has that reaches past its own files and devices, or harms a GPU of its host, for people."""
    return tuple(dict.fromkeys(_unsafe(root)))


def _unsafe(root: ET.Element) -> Iterator[str]:
    for child in root:
        namespace, _, tag = child.tag.rpartition("}")
        if namespace and tag != _DESCRIBES_QEMU and not is_large_bars(child):
            yield f"{'qemu:' if '/qemu/' in namespace else ''}{tag}"
    yield from ("seclabel" for label in root.findall("seclabel") if is_unconfined(label))
    if root.find("./memoryBacking/source[@type='file']") is not None:
        yield "memoryBacking of type file"
    if root.find("./sysinfo/entry[@file]") is not None:
        yield "sysinfo with a file of the host"
    if any(one.get("type") == "pflash" and one.get("readonly") != "yes" for one in root.findall("./os/loader")):
        yield "os/loader that is not readonly"
    if any(one.get("scheduler") in _REAL_TIME for one in root.findall("./cputune/*")):
        yield "cputune with a real-time scheduler"
    for device in root.findall("./devices/*"):
        yield from unsafe_device(device)


def is_unconfined(label: ET.Element) -> bool:
    """``label``: a seclabel. libvirt writes the model "none" itself where the host has neither AppArmor nor SELinux."""
    return label.get("model") != "none" and (label.get("type") == "none" or label.get("relabel") == "no")
