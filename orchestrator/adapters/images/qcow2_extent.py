# SPDX-License-Identifier: Apache-2.0
"""How long the file of a qcow2 image must be to hold all that its tables point to: whether its end is missing.

``qemu-img check`` counts clusters and does not see that the last one is cut, and reads what is missing as zeros.
"""

from __future__ import annotations

import sys
from array import array
from typing import BinaryIO, Final

from orchestrator.adapters.images.qcow2 import Header

_SECTOR: Final = 512
_COMPRESSED: Final = 1 << 62
_SUBCLUSTERS: Final = 32
_ALLOCATED: Final = 0xFFFF_FFFF
_OFFSET: Final = 0x00FF_FFFF_FFFF_FE00


def needed_bytes(file: BinaryIO, file_bytes: int, header: Header) -> int:
    """The end of the last thing that the active L1 table leads to. Reads each L2 table once; the header bounds how many
    there are."""
    tables = {offset for entry in _entries(file, header.l1_offset, header.l1_entries) if (offset := entry & _OFFSET)}
    end = max((offset + header.cluster_bytes for offset in tables), default=0)
    if end > file_bytes:
        return end
    for offset in sorted(tables):
        entries = _entries(file, offset, header.cluster_bytes // 8)
        subclusters = entries[1::2] if header.l2_entry_bytes == 16 else None
        end = max(end, _end_of_data(entries if subclusters is None else entries[::2], subclusters, header))
    return end


def _entries(file: BinaryIO, offset: int, count: int) -> array[int]:
    """Big-endian numbers of 64 bits; those behind the end of the file are not there."""
    file.seek(offset)
    content = file.read(count * 8)
    entries = array("Q", content[: len(content) // 8 * 8])
    if sys.byteorder == "little":
        entries.byteswap()
    return entries


def _end_of_data(entries: array[int], subclusters: array[int] | None, header: Header) -> int:
    """A compressed cluster ends in a sector, one of subclusters with the last of those that hold something, any other
    with itself. ``subclusters``: with each entry, which of them do (its lower half, says qcow2's specification)."""
    size_at = 62 - (header.cluster_bits - 8)
    end = 0
    for number, entry in enumerate(entries):
        if entry & _COMPRESSED:
            offset = entry & ((1 << size_at) - 1)
            sectors = (entry & (_COMPRESSED - 1)) >> size_at
            end = max(end, (offset // _SECTOR + sectors + 1) * _SECTOR)
        elif entry & _OFFSET:
            held = _SUBCLUSTERS if subclusters is None else (subclusters[number] & _ALLOCATED).bit_length()
            end = max(end, (entry & _OFFSET) + held * header.cluster_bytes // _SUBCLUSTERS)
    return end
