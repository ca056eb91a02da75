# SPDX-License-Identifier: Apache-2.0
"""``<channel>``: the port by which libvirt speaks to QEMU's guest agent, where a guest has that. QEMU makes the socket
at its other end, in libvirt's directory and with a name of libvirt's."""

from __future__ import annotations

import re
from typing import Final
from xml.etree import ElementTree as ET

_PORT: Final = {"type": "virtio", "name": "org.qemu.guest_agent.0"}
_SOCKET: Final = re.compile(
    r"(/run|/var/lib)/libvirt/qemu/channel/(target/)?[A-Za-z0-9_-][A-Za-z0-9._-]*/org\.qemu\.guest_agent\.0", re.ASCII
)


def guest_agent() -> ET.Element:
    channel = ET.Element("channel", type="unix")
    ET.SubElement(channel, "target", _PORT)
    return channel


def is_guest_agent(channel: ET.Element) -> bool:
    """Whether that is all it is. libvirt says its socket and its state of a domain that runs."""
    target, source = channel.find("target"), channel.find("source")
    named = {part.tag for part in channel} <= {"source", "target", "alias", "address"}
    if channel.get("type") != "unix" or target is None or not named:
        return False
    port = {name: value for name, value in target.attrib.items() if name != "state"}
    return port == _PORT and (source is None or _is_libvirts(source))


def _is_libvirts(source: ET.Element) -> bool:
    known = source.attrib.keys() <= {"mode", "path"} and source.get("mode", "bind") == "bind" and not len(source)
    return known and ("path" not in source.attrib or _SOCKET.fullmatch(source.attrib["path"]) is not None)


def is_connected(domain: ET.Element) -> bool:
    """Whether a guest agent has opened the port. ``domain``: one that runs, as libvirt says it."""
    return domain.find(f"./devices/channel/target[@name='{_PORT['name']}'][@state='connected']") is not None


def without_socket(domain: ET.Element) -> None:
    """As for another host, whose libvirt names its own."""
    for channel in filter(is_guest_agent, domain.findall("./devices/channel")):
        for source in channel.findall("source"):
            channel.remove(source)
