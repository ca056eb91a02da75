# SPDX-License-Identifier: Apache-2.0
"""For which processors the system on a disk is, where its partition table tells: most distributions give their root
file system the type that stands for an architecture. Nothing told is nothing known.

Sources: UAPI group, Discoverable Partitions Specification; UEFI specification 2.10 §5.3; QEMU docs/interop/qcow2.txt.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Final
from uuid import UUID

from orchestrator.adapters.images.qcow2 import Header

_HEAD_BYTES: Final = 34 * 512
"""A GPT with its 128 entries."""
_MAX_ENTRIES: Final = 128
_ENTRY: Final = 128
_RUNS: Final = frozenset({UUID("4f68bce3-e8cd-4db1-96e7-fbcaf984b709"), UUID("8484680c-9521-48c6-9c11-b0720656f69e")})
_OTHERS: Final = {
    UUID("b921b045-1df0-41c3-af44-4c6f280d3fae"): "aarch64", UUID("b0e01050-ee5f-4390-949a-9101b17104e9"): "aarch64",
    UUID("69dad710-2ce4-4e3c-b16c-21a1d49abed3"): "arm", UUID("7d0359a3-02b3-4f0a-865c-654403e70625"): "arm",
    UUID("72ec70a6-cf74-40e6-bd49-4bda08e8f224"): "riscv64", UUID("beaec34b-8442-439b-a40b-984381ed097d"): "riscv64",
    UUID("c31c45e6-3f39-412e-80fb-4809c4980599"): "ppc64le", UUID("15bb03af-77e7-4d4a-b12b-c0d084f7491c"): "ppc64le",
    UUID("9e1a2d38-c612-4316-aa26-8b49521e5a8b"): "ppc64le",
    UUID("77055800-792c-4f94-b39a-98c91b762bb6"): "loongarch64",
    UUID("5eead9a9-fe09-4a1e-a1d7-520d00531306"): "s390x", UUID("8a4f5770-50aa-4ed3-874a-99b710db6fea"): "s390x",
}  # fmt: skip
_OFFSET: Final = 0x00FF_FFFF_FFFF_FE00
_COMPRESSED: Final = 1 << 62


def other_architecture(file: BinaryIO, header: Header | None) -> str | None:
    """Its name where no x86 system is on the disk. ``header``: of a qcow2 image; None: the file is the disk."""
    types = set(_partition_types(file.read(_HEAD_BYTES) if header is None else _first_cluster(file, header)))
    return None if types & _RUNS else next((_OTHERS[kind] for kind in types if kind in _OTHERS), None)


def _partition_types(head: bytes) -> Iterator[UUID]:
    if head[512:520] != b"EFI PART" or len(head) < _HEAD_BYTES:
        return
    at, count, size = struct.unpack_from("<Q", head, 584)[0] * 512, *struct.unpack_from("<II", head, 592)
    for number in range(min(count, _MAX_ENTRIES)):
        entry = head[at + number * _ENTRY :][:16]
        if size == _ENTRY and len(entry) == len(UUID(int=0).bytes):
            yield UUID(bytes_le=entry)


def _first_cluster(file: BinaryIO, header: Header) -> bytes:
    """Of the disk in the image; nothing where it is not stored, or not compressed with zlib."""
    table = _number_at(file, header.l1_offset) & _OFFSET
    entry = _number_at(file, table) if table else 0
    if not entry & _COMPRESSED:
        file.seek(entry & _OFFSET)
        return file.read(_HEAD_BYTES) if entry & _OFFSET else b""
    bits = 62 - (header.cluster_bits - 8)
    file.seek(entry & (1 << bits) - 1)
    try:
        return zlib.decompressobj(-12).decompress(file.read(header.cluster_bytes + 512), header.cluster_bytes)
    except zlib.error:
        return b""


def _number_at(file: BinaryIO, offset: int) -> int:
    file.seek(offset)
    return int.from_bytes(file.read(8), "big")
