# SPDX-License-Identifier: Apache-2.0
"""The header of a qcow2 image, read strictly: what is not known to stand alone and to be whole is refused by name.

Its tables are followed to the end: ``qemu-img check`` counts clusters and does not see that the last one is cut, and
reads what is missing as zeros. Source: QEMU docs/interop/qcow2.txt; the bounds are those of QEMU's own reader.
"""

from __future__ import annotations

import struct
import sys
from array import array
from dataclasses import dataclass
from typing import BinaryIO, Final

from orchestrator.adapters.images.refused import check_disk_size, unsafe

MAGIC: Final = b"QFI\xfb"
MAX_HEADER_BYTES: Final = 2 * 1024**2
"""The largest cluster; header and extensions lie in the first one."""
_BASE: Final = struct.Struct(">4sIQIIQIIQQIIQ")
_MORE: Final = struct.Struct(">QQQII")
"""Of version 3: incompatible, compatible and autoclear features, refcount order, header length."""
_EXTENSION: Final = struct.Struct(">II")
_CLUSTER_BITS: Final = range(9, 22)
_MIN_EXTENDED_BITS: Final = 14
_MAX_L1_BYTES: Final = 32 * 1024**2
_MAX_REFCOUNT_BYTES: Final = 8 * 1024**2
_MAX_SNAPSHOTS: Final = 65_536
_MAX_REFCOUNT_ORDER: Final = 6
_MAX_EXTENSIONS: Final = 64
_COMPRESSIONS: Final = frozenset({0, 1})
_ENCRYPTIONS: Final = {1: "AES", 2: "LUKS"}
_DIRTY, _CORRUPT, _DATA_FILE, _COMPRESSION, _EXTENDED_L2 = (1 << bit for bit in range(5))
_KNOWN: Final = _DIRTY | _CORRUPT | _DATA_FILE | _COMPRESSION | _EXTENDED_L2
_ENDS: Final = 0
_ENCRYPTION_HEADER: Final = 0x0537BE77
_DATA_FILE_NAME: Final = 0x44415441
_ALONE: Final = "a base image must stand alone: qemu-img convert -O qcow2 writes such a copy"
_PLAIN: Final = "a base image is not encrypted: qemu-img convert writes a plain copy"
_REPAIR: Final = "mend it with qemu-img check -r all, or download it again"


@dataclass(frozen=True, kw_only=True)
class Header:
    """What the tables of an image are found by; offsets and sizes in bytes."""

    virtual_bytes: int
    cluster_bits: int
    l1_offset: int
    l1_entries: int
    refcount_offset: int
    refcount_bytes: int
    l2_entry_bytes: int
    """16 with extended L2 entries, else 8."""

    @property
    def cluster_bytes(self) -> int:
        return 1 << self.cluster_bits

    @property
    def l2_entries(self) -> int:
        """Of one table, which fills a cluster."""
        return self.cluster_bytes // self.l2_entry_bytes


def read_header(head: bytes, file_bytes: int) -> Header:
    """``head``: at least the first cluster of the file, or all of it; ``file_bytes``: the length of the file.

    :raises InvalidInput: ``image.unsafe``, ``image.too_large``
    """
    if len(head) < _BASE.size:
        raise unsafe("is cut: its header is not whole", _REPAIR)
    (
        _,
        version,
        backing_offset,
        backing_bytes,
        cluster_bits,
        virtual_bytes,
        encryption,
        l1_entries,
        l1_offset,
        refcount_offset,
        refcount_clusters,
        snapshots,
        _,
    ) = _BASE.unpack_from(head)
    if version not in (2, 3):
        raise unsafe(f"is qcow2 of version {version}; 2 and 3 are known")
    if backing_offset or backing_bytes:
        raise unsafe("refers to a backing file", _ALONE)
    if encryption:
        raise unsafe(f"is encrypted ({_ENCRYPTIONS.get(encryption, 'in an unknown way')})", _PLAIN)
    if cluster_bits not in _CLUSTER_BITS:
        raise unsafe(f"has clusters of 2^{cluster_bits} bytes; 2^9 to 2^21 are allowed")
    check_disk_size(virtual_bytes)
    if snapshots > _MAX_SNAPSHOTS:
        raise unsafe(f"says that it has {snapshots} snapshots")
    extended = _check_version_3(head, cluster_bits) if version == 3 else False
    header = Header(
        virtual_bytes=virtual_bytes,
        cluster_bits=cluster_bits,
        l1_offset=l1_offset,
        l1_entries=l1_entries,
        refcount_offset=refcount_offset,
        refcount_bytes=refcount_clusters << cluster_bits,
        l2_entry_bytes=16 if extended else 8,
    )
    _check_tables(header, file_bytes)
    return header


def _check_version_3(head: bytes, cluster_bits: int) -> bool:
    """Whether its L2 entries are extended."""
    if len(head) < _BASE.size + _MORE.size:
        raise unsafe("is cut: its header is not whole", _REPAIR)
    features, _, _, refcount_order, length = _MORE.unpack_from(head, _BASE.size)
    if features & ~_KNOWN:
        raise unsafe(f"has features that are not known (0x{features & ~_KNOWN:x})")
    if features & _DATA_FILE:
        raise unsafe("keeps its content in an external data file", _ALONE)
    if features & _CORRUPT:
        raise unsafe("is marked as damaged", _REPAIR)
    if features & _DIRTY:
        raise unsafe("was not closed properly", _REPAIR)
    if features & _EXTENDED_L2 and cluster_bits < _MIN_EXTENDED_BITS:
        raise unsafe(f"has extended L2 entries with clusters of 2^{cluster_bits} bytes")
    if refcount_order > _MAX_REFCOUNT_ORDER:
        raise unsafe(f"has reference counts of 2^{refcount_order} bits")
    if length < _BASE.size + _MORE.size or length % 8 or length > 1 << cluster_bits:
        raise unsafe(f"has a header of {length} bytes")
    _check_compression(head, length, named=bool(features & _COMPRESSION))
    _check_extensions(head[: 1 << cluster_bits], length)
    return bool(features & _EXTENDED_L2)


def _check_compression(head: bytes, length: int, *, named: bool) -> None:
    at = _BASE.size + _MORE.size
    kind = head[at] if length > at and len(head) > at else 0
    if kind not in _COMPRESSIONS or named != bool(kind):
        raise unsafe(f"is compressed in a way that is not known ({kind})")


def _check_extensions(cluster: bytes, at: int) -> None:
    """Behind the header, up to the one that ends them."""
    for _ in range(_MAX_EXTENSIONS):
        if at + _EXTENSION.size > len(cluster):
            raise unsafe("has a header that does not end in its first cluster")
        kind, length = _EXTENSION.unpack_from(cluster, at)
        if kind == _ENDS:
            return
        if kind == _DATA_FILE_NAME:
            raise unsafe("names an external data file", _ALONE)
        if kind == _ENCRYPTION_HEADER:
            raise unsafe("is encrypted (LUKS)", _PLAIN)
        at += _EXTENSION.size + (length + 7 & ~7)
    raise unsafe(f"has more than {_MAX_EXTENSIONS} header extensions")


def _check_tables(header: Header, file_bytes: int) -> None:
    cluster = header.cluster_bytes
    needed = -(-header.virtual_bytes // (cluster * header.l2_entries))
    l1_bytes = header.l1_entries * 8
    if l1_bytes > _MAX_L1_BYTES:
        raise unsafe(f"says that its L1 table has {header.l1_entries} entries")
    if header.l1_entries < needed:
        raise unsafe(f"has an L1 table of {header.l1_entries} entries; its disk needs {needed}")
    if not 0 < header.refcount_bytes <= _MAX_REFCOUNT_BYTES:
        raise unsafe(f"says that its refcount table has {header.refcount_bytes} bytes")
    for name, offset, size in (
        ("L1", header.l1_offset, l1_bytes),
        ("refcount", header.refcount_offset, header.refcount_bytes),
    ):
        if offset == 0 or offset % cluster:
            raise unsafe(f"has its {name} table at {offset}, where no cluster begins")
        if offset + size > file_bytes:
            raise unsafe(f"is cut: its {name} table ends at {offset + size}, the file at {file_bytes}", _REPAIR)


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
