# SPDX-License-Identifier: Apache-2.0
"""``<disk>``: formats are always written down; a guest can put any header into a disk that is guessed about."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from orchestrator.core.vm import Vm

STORAGE = "/var/lib/vgpuctl-agent"
"""Where the agent keeps volumes and seeds."""


def volume_disk(vm: Vm) -> ET.Element:
    """The overlay on the base image."""
    disk = ET.Element("disk", type="file", device="disk")
    ET.SubElement(disk, "driver", name="qemu", type="qcow2", discard="unmap")
    ET.SubElement(disk, "source", file=f"{STORAGE}/volumes/{vm.volume}")
    ET.SubElement(disk, "target", dev="vda", bus="virtio")
    ET.SubElement(disk, "boot", order="1")
    return disk


def seed_disk(vm: Vm) -> ET.Element:
    """The NoCloud seed as a CD-ROM."""
    disk = ET.Element("disk", type="file", device="cdrom")
    ET.SubElement(disk, "driver", name="qemu", type="raw")
    ET.SubElement(disk, "source", file=f"{STORAGE}/seeds/{vm.seed}")
    ET.SubElement(disk, "target", dev="sda", bus="sata")
    ET.SubElement(disk, "readonly")
    return disk
