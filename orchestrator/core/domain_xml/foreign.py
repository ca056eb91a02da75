# SPDX-License-Identifier: Apache-2.0
"""What a definition that somebody else wrote tells: who goes on changing the domain, what no VM of ours has, and
devices which reach past the domain's own files, or harm a GPU of its host.

What describes hardware of the guest alone (graphics, an emulated TPM, the guest agent's channel) is as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final
from xml.etree import ElementTree as ET

from orchestrator.core.domain_xml.domain import METADATA_NAMESPACE
from orchestrator.core.domain_xml.firmware import is_large_bars

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
    names = (_known(entry.text or "") for part in _MACHINE for entry in root.findall(f"./sysinfo/{part}/entry"))
    return next((name for name in names if name), "")


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
    if any(part.get("type") == "pflash" and part.get("readonly") != "yes" for part in root.findall("./os/loader")):
        yield "os/loader that is not readonly"
    if any(part.get("scheduler") in _REAL_TIME for part in root.findall("./cputune/*")):
        yield "cputune with a real-time scheduler"
    for device in root.findall("./devices/*"):
        yield from unsafe_device(device)


def is_unconfined(label: ET.Element) -> bool:
    """``label``: a seclabel. libvirt writes the model "none" itself where the host has neither AppArmor nor SELinux."""
    return label.get("model") != "none" and (label.get("type") == "none" or label.get("relabel") == "no")


_NEVER: Final = ("shmem", "filesystem", "vsock")
_OTHER_DISKS: Final = ("nvme", "vhostuser", "vhostvdpa", "dir")
_OTHER_INTERFACES: Final = ("hostdev", "vhostuser", "vdpa", "client", "server", "mcast", "udp")
_CHARACTER_DEVICES: Final = ("serial", "console", "parallel", "channel", "redirdev")
_OF_THE_GUEST: Final = ("pty", "null", "vc", "spicevmc", "spiceport", "qemu-vdagent")
"""Other ends of a character device that are QEMU's own; a socket that QEMU itself makes is one as well."""
_RANDOM: Final = ("/dev/urandom", "/dev/random", "/dev/hwrng")
_INSTALLED: Final = "/usr/"


def unsafe_device(device: ET.Element) -> Iterator[str]:
    """What no VM may have of it, for people. ``device``: a child of ``<devices>``."""
    if device.tag in _NEVER:
        yield device.tag
    elif device.tag in _CHARACTER_DEVICES:
        yield from _character_device(device)
    elif device.tag in _JUDGES:
        yield from _JUDGES[device.tag](device)


def _kind(device: ET.Element) -> str:
    return device.get("type", "")


def _hostdev(device: ET.Element) -> Iterator[str]:
    kind = device.get("type", "pci")
    if device.get("mode", "subsystem") != "subsystem":
        yield f"hostdev of mode {device.get('mode')}"
    elif kind == "scsi_host" or _is_raw(device):
        yield f"hostdev of type {kind}"
    elif (kind, device.get("managed")) == ("pci", "yes"):
        # libvirt gives a managed function to vfio-pci: NVIDIA's driver would lose one that is a vGPU
        yield "hostdev with managed='yes'"


def _disk(device: ET.Element) -> Iterator[str]:
    for part in (device, *device.iterfind(".//backingStore"), *device.iterfind("mirror")):
        if _kind(part) in _OTHER_DISKS:
            yield f"disk of type {_kind(part)}"
    if device.get("device") == "lun" or _is_raw(device):
        yield "disk with the device's own SCSI commands"


def _is_raw(device: ET.Element) -> bool:
    return device.get("rawio") == "yes" or device.get("sgio") == "unfiltered"


def _interface(device: ET.Element) -> Iterator[str]:
    if _kind(device) in _OTHER_INTERFACES:
        yield f"interface of type {_kind(device)}"
    if device.find("script") is not None or device.find("downscript") is not None:
        yield "interface with a script"


def _character_device(device: ET.Element) -> Iterator[str]:
    """``<source>`` without a mode connects to a socket of somebody else; without a path it is libvirt's."""
    source = device.find("source")
    connects = source is not None and source.get("path") is not None and source.get("mode") != "bind"
    if _kind(device) not in _OF_THE_GUEST and (_kind(device) != "unix" or connects):
        yield f"{device.tag} of type {_kind(device)}"


def _smartcard(device: ET.Element) -> Iterator[str]:
    if device.get("mode") != "passthrough" or _kind(device) not in _OF_THE_GUEST:
        yield f"smartcard of mode {device.get('mode')}"


def _rng(device: ET.Element) -> Iterator[str]:
    for backend in device.findall("backend"):
        model = backend.get("model", "random")
        if model not in {"random", "builtin"}:
            yield f"rng of model {model}"
        elif (backend.text or "").strip() not in ("", *_RANDOM):
            yield "rng with a file of the host"


def _tpm(device: ET.Element) -> Iterator[str]:
    for backend in device.findall("backend"):
        if _kind(backend) != "emulator":
            yield f"tpm of type {_kind(backend)}"


def _memory(device: ET.Element) -> Iterator[str]:
    if device.find("source/path") is not None:
        yield f"memory of model {device.get('model')}"


def _input(device: ET.Element) -> Iterator[str]:
    if device.find("source") is not None:
        yield f"input of type {_kind(device)}"


def _video(device: ET.Element) -> Iterator[str]:
    if device.find("driver[@name='vhostuser']") is not None:
        yield "video of type vhostuser"


def _audio(device: ET.Element) -> Iterator[str]:
    if _kind(device) == "file":
        yield "audio of type file"


def _emulator(device: ET.Element) -> Iterator[str]:
    if not (device.text or "").strip().startswith(_INSTALLED):
        yield "emulator"


_JUDGES: Final[Mapping[str, Callable[[ET.Element], Iterator[str]]]] = {
    "hostdev": _hostdev, "disk": _disk, "interface": _interface, "smartcard": _smartcard, "rng": _rng, "tpm": _tpm,
    "memory": _memory, "input": _input, "video": _video, "audio": _audio, "emulator": _emulator,
}  # fmt: skip
