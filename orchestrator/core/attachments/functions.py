# SPDX-License-Identifier: Apache-2.0
"""PCI functions: choosing one to make a vGPU on, naming one in a domain."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as ET

from orchestrator.core.pci import split_pci_address
from orchestrator.core.snapshot import VgpuParent


def first_free(parents: Sequence[VgpuParent], type_name: str, taken: frozenset[str]) -> VgpuParent | None:
    """The lowest address nobody has claimed, preferring those whose driver says it takes the type now.

    The driver's list may be older than the claims, so a function without the type is still a candidate:
    the driver has the last word when the vGPU is made.
    """
    free = sorted((p for p in parents if p.address not in taken), key=lambda p: p.address)
    return next((p for p in free if type_name in p.creatable), free[0] if free else None)


def pci_source(address: str) -> ET.Element:
    """The ``<source>`` of a PCI ``<hostdev>``."""
    domain, bus, slot, function = split_pci_address(address)
    source = ET.Element("source")
    ET.SubElement(
        source,
        "address",
        domain=f"0x{domain:04x}",
        bus=f"0x{bus:02x}",
        slot=f"0x{slot:02x}",
        function=f"0x{function:x}",
    )
    return source
