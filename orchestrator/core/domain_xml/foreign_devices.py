# SPDX-License-Identifier: Apache-2.0
"""Devices of a definition that somebody else wrote which reach past the domain's own files, or harm a GPU of its host.

What describes hardware of the guest alone (graphics, an emulated TPM, the guest agent's channel) is as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final
from xml.etree import ElementTree as ET

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
