# SPDX-License-Identifier: Apache-2.0
"""``<graphics>``, ``<video>`` and ``<input>``: the screen that ``vgpuctl vnc`` shows. Nothing listens for it."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from orchestrator.core.hosts.domain import Firmware


def display(firmware: Firmware) -> tuple[ET.Element, ET.Element, ET.Element]:
    """VNC that only libvirt opens, by passing a descriptor to QEMU; a card that the firmware draws on; a pointer that
    knows where it is on the screen. The keyboard is the PS/2 one that libvirt adds to every screen."""
    graphics = ET.Element("graphics", type="vnc")
    ET.SubElement(graphics, "listen", type="none")
    video = ET.Element("video")
    ET.SubElement(video, "model", type="bochs" if firmware == "uefi" else "vga", vram="16384", heads="1", primary="yes")
    return graphics, video, ET.Element("input", type="tablet", bus="virtio")


def is_own_graphics(graphics: ET.Element) -> bool:
    """Whether it is as :func:`display` writes it: no address, socket or password."""
    listeners = graphics.findall("listen")
    return (
        graphics.attrib == {"type": "vnc"}
        and len(graphics) == len(listeners) == 1
        and listeners[0].attrib == {"type": "none"}
    )


def vnc_index(xml: str) -> int | None:
    """Which of a domain's graphics is its first VNC one, as libvirt counts them; None: it has none. ``xml``: libvirt's
    own, of any domain."""
    graphics = ET.fromstring(xml).findall("./devices/graphics")  # noqa: S314 - libvirt's
    return next((index for index, screen in enumerate(graphics) if screen.get("type") == "vnc"), None)
