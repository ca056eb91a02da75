# SPDX-License-Identifier: Apache-2.0
"""``<disk>``: formats are always written down; a guest can put any header into a disk that is guessed about."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from orchestrator.core.domain import DomainDescription

STORAGE = "/var/lib/vgpuctl-agent"
"""Where the agent keeps volumes and seeds, unless its configuration says otherwise."""


def volume_disk(domain: DomainDescription, storage: str) -> ET.Element:
    """The overlay on the base image."""
    disk = ET.Element("disk", type="file", device="disk")
    ET.SubElement(disk, "driver", name="qemu", type="qcow2", discard="unmap")
    ET.SubElement(disk, "source", file=f"{storage}/volumes/{domain.volume}")
    ET.SubElement(disk, "target", dev="vda", bus="virtio")
    ET.SubElement(disk, "boot", order="1")
    return disk


def seed_disk(domain: DomainDescription, storage: str) -> ET.Element:
    """The NoCloud seed as a CD-ROM."""
    disk = ET.Element("disk", type="file", device="cdrom")
    ET.SubElement(disk, "driver", name="qemu", type="raw")
    ET.SubElement(disk, "source", file=f"{storage}/seeds/{domain.seed}")
    ET.SubElement(disk, "target", dev="sda", bus="sata")
    ET.SubElement(disk, "readonly")
    return disk
