# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's vendor-specific VFIO: a virtual function gets a vGPU type by writing its id to one file.

Format: a header line, then ``<id> : <name>`` lines, fewer with every vGPU that is made.
``current_vgpu_type`` reads 0 for none.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.agent.paths import Paths
from orchestrator.agent.sysfs import reading


@dataclass(frozen=True)
class VirtualFunction:
    """One virtual function with NVIDIA's attributes."""

    address: str
    current_id: int | None
    """0: no vGPU; None: could not be read."""
    creatable: tuple[tuple[int, str], ...]
    problem: str | None = None


def is_vendor_vfio(paths: Paths, address: str) -> bool:
    return (paths.pci(address) / "nvidia" / "creatable_vgpu_types").exists()


def parse_creatable(text: str) -> tuple[tuple[int, str], ...]:
    """Ids and names in the driver's order; header and lines of another form are left out."""
    found = []
    for line in text.splitlines():
        number, colon, name = line.partition(":")
        if colon and number.strip().isdecimal() and name.strip():
            found.append((int(number), name.strip()))
    return tuple(found)


def read(paths: Paths, address: str) -> VirtualFunction:
    directory = paths.pci(address) / "nvidia"
    creatable = reading.text(directory / "creatable_vgpu_types")
    current = reading.number(directory / "current_vgpu_type")
    unread = [
        name for name, value in (("creatable_vgpu_types", creatable), ("current_vgpu_type", current)) if value is None
    ]
    return VirtualFunction(
        address=address,
        current_id=current,
        creatable=parse_creatable(creatable or ""),
        problem=f"{address}: cannot read {' and '.join(unread)}" if unread else None,
    )
