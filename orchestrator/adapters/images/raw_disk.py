# SPDX-License-Identifier: Apache-2.0
"""What a raw disk says it holds: a partition table or a file system, by its name, and where that ends.

Sources: UEFI specification 2.10 §5 (GPT, MBR); Linux fs/ext4/ext4.h, fs/xfs/libxfs/xfs_format.h and
include/uapi/linux/btrfs_tree.h (places of magic numbers and sizes).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

HEAD_BYTES: Final = 128 * 1024
"""As much of the disk is looked at."""
_MBR_BOOTABLE: Final = frozenset({0x00, 0x80})
_PARTITION: Final = struct.Struct("<B3xB3xII")
_PROTECTIVE: Final = 0xEE


@dataclass(frozen=True)
class Content:
    name: str
    bytes: int
    """How much of the disk it takes."""


def content_of(head: bytes) -> Content | None:
    """None: nothing that can be named. ``head``: the first :data:`HEAD_BYTES`, or the whole disk."""
    padded = head.ljust(HEAD_BYTES, b"\0")
    return next((content for read in _LOOKS if (content := read(padded)) is not None), None)


def _gpt(head: bytes) -> Content | None:
    for sector in (512, 4096):
        if head[sector : sector + 8] == b"EFI PART":
            (last,) = struct.unpack_from("<Q", head, sector + 32)
            return Content("GPT", (last + 1) * sector)
    return None


def _mbr(head: bytes) -> Content | None:
    if head[510:512] != b"\x55\xaa":
        return None
    entries = [_PARTITION.unpack_from(head, 446 + 16 * number) for number in range(4)]
    used = [(start, count) for flag, kind, start, count in entries if kind not in (0, _PROTECTIVE) and start and count]
    if not used or any(flag not in _MBR_BOOTABLE for flag, *_ in entries):
        return None
    return Content("MBR", max(start + count for start, count in used) * 512)


def _ext(head: bytes) -> Content | None:
    blocks, log_size = struct.unpack_from("<I", head, 1028)[0], struct.unpack_from("<I", head, 1048)[0]
    return Content("ext", blocks << 10 + log_size) if head[1080:1082] == b"\x53\xef" and log_size <= 6 else None


def _xfs(head: bytes) -> Content | None:
    size, blocks = struct.unpack_from(">IQ", head, 4)
    return Content("XFS", size * blocks) if head[:4] == b"XFSB" else None


def _btrfs(head: bytes) -> Content | None:
    (total,) = struct.unpack_from("<Q", head, 0x10070)
    return Content("btrfs", total) if head[0x10040:0x10048] == b"_BHRfS_M" else None


_LOOKS: Final[tuple[Callable[[bytes], Content | None], ...]] = (_gpt, _mbr, _ext, _xfs, _btrfs)
