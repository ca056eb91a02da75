# SPDX-License-Identifier: Apache-2.0
"""How much of the address space above 4 GiB a PCI function's BARs take (sysfs ``resource``, linux/ioport.h)."""

from __future__ import annotations

from typing import Final

from orchestrator.agent.paths import Paths
from orchestrator.agent.sysfs import reading

_BARS: Final = 6
"""The lines of a function's own BARs; its ROM and those of its virtual functions come after them."""
_MEMORY, _64_BIT = 0x00000200, 0x00100000


def large_bar_bytes(paths: Paths, address: str) -> int:
    """Bytes of its 64-bit memory BARs; 0: it has none, or is not there."""
    lines = (reading.text(paths.pci(address) / "resource") or "").splitlines()[:_BARS]
    return sum(_size(line.split()) for line in lines)


def _size(words: list[str]) -> int:
    try:
        first, last, flags = (int(word, 16) for word in words)
    except ValueError:
        return 0
    wanted = _MEMORY | _64_BIT
    return last - first + 1 if flags & wanted == wanted and last > first else 0
