# SPDX-License-Identifier: Apache-2.0
"""``<serial>`` and ``<console>``: what ``vgpuctl console`` shows."""

from __future__ import annotations

from xml.etree import ElementTree as ET


def serial_console() -> tuple[ET.Element, ET.Element]:
    """A UART that is also the console. libvirt's log daemon is not asked to keep what guests print."""
    serial = ET.Element("serial", type="pty")
    ET.SubElement(serial, "target", port="0")
    console = ET.Element("console", type="pty")
    ET.SubElement(console, "target", type="serial", port="0")
    return serial, console
