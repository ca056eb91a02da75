# SPDX-License-Identifier: Apache-2.0
"""``<disk>``: formats and what lies beneath are always written down. A guest, or a QEMU that it took over, can put any
header into a disk that is guessed about."""

from __future__ import annotations

from collections.abc import Iterator
from string import ascii_lowercase
from xml.etree import ElementTree as ET

from orchestrator.core.hosts.domain import DomainDescription

STORAGE = "/var/lib/vgpuctl-agent"
"""Where the agent keeps volumes and seeds, unless its configuration says otherwise."""


def volume_disk(domain: DomainDescription, storage: str, image: str | None) -> ET.Element:
    """The overlay on the base image. ``image``: as :func:`domain_xml` takes it."""
    disk = ET.Element("disk", type="file", device="disk")
    ET.SubElement(disk, "driver", name="qemu", type="qcow2", discard="unmap")
    ET.SubElement(disk, "source", file=f"{storage}/volumes/{domain.volume}")
    if image is not None:
        disk.append(_image_beneath(storage, image))
    ET.SubElement(disk, "target", dev="vda", bus="virtio")
    ET.SubElement(disk, "boot", order="1")
    return disk


def data_disks(domain: DomainDescription, storage: str) -> Iterator[ET.Element]:
    """Data volumes, from ``vdb`` on. Raw: no guest can write a header that would be taken for one."""
    for letter, name in zip(ascii_lowercase[1:], domain.data, strict=False):
        disk = ET.Element("disk", type="file", device="disk")
        ET.SubElement(disk, "driver", name="qemu", type="raw", discard="unmap")
        ET.SubElement(disk, "source", file=f"{storage}/data/{name}")
        ET.SubElement(disk, "backingStore")
        ET.SubElement(disk, "target", dev=f"vd{letter}", bus="virtio")
        ET.SubElement(disk, "serial").text = name.partition(".")[0][:20]
        yield disk


def seed_disk(domain: DomainDescription, storage: str) -> ET.Element:
    """The NoCloud seed as a CD-ROM."""
    disk = ET.Element("disk", type="file", device="cdrom")
    ET.SubElement(disk, "driver", name="qemu", type="raw")
    ET.SubElement(disk, "source", file=f"{storage}/seeds/{domain.seed}")
    ET.SubElement(disk, "backingStore")
    ET.SubElement(disk, "target", dev="sda", bus="sata")
    ET.SubElement(disk, "readonly")
    return disk


def _image_beneath(storage: str, image: str) -> ET.Element:
    """libvirt and QEMU read no header where the chain is written down with its end, which is an empty element."""
    beneath = ET.Element("backingStore", type="file")
    ET.SubElement(beneath, "format", type=image.rpartition(".")[2])
    ET.SubElement(beneath, "source", file=f"{storage}/images/{image}")
    ET.SubElement(beneath, "backingStore")
    return beneath
