# SPDX-License-Identifier: Apache-2.0
"""``<serial>`` and ``<console>``: what ``vgpuctl console`` shows, and what is kept of it."""

from __future__ import annotations

from typing import Final
from xml.etree import ElementTree as ET

LOG_DIRECTORY: Final = "/var/log/libvirt/qemu"
"""libvirt's own: SELinux lets its log daemon write there and nowhere of ours."""
MAX_LOG_BYTES: Final = 128 * 1024
"""Of what a VM's console wrote, told at once."""


def console_log(vm_id: str) -> str:
    """The file in which libvirt's log daemon keeps what the VM prints. The daemon bounds it (2 MiB and three older
    files unless its host says otherwise); no ``.log`` at the end, so that logrotate does not take it as well."""
    return f"{LOG_DIRECTORY}/vgpuctl-{vm_id}.console"


def serial_console(vm_id: str) -> tuple[ET.Element, ET.Element]:
    """A UART that is also the console, and keeps what the guest prints."""
    serial = ET.Element("serial", type="pty")
    ET.SubElement(serial, "log", file=console_log(vm_id), append="on")
    ET.SubElement(serial, "target", port="0")
    console = ET.Element("console", type="pty")
    ET.SubElement(console, "target", type="serial", port="0")
    return serial, console
