# SPDX-License-Identifier: Apache-2.0
"""What an image file says of itself, read from its first bytes without running anything on it.

qcow2: QEMU docs/interop/qcow2.txt. A file is only ever read as the format it was given as: a raw disk may carry
any bytes at its start, put there by a guest.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from orchestrator.core.actions.host_actions import ImageFormat
from orchestrator.core.errors import Fatal

_HEADER = struct.Struct(">4sIQIIQ")
"""magic, version, backing file offset, backing file size, cluster bits, virtual size"""
_MAGIC = b"QFI\xfb"
_INCOMPATIBLE_OFFSET = 72
_EXTERNAL_DATA_FILE = 1 << 2
_MAX_BACKING_NAME = 1023
_HEADER_BYTES = 112


@dataclass(frozen=True)
class ImageHeader:
    virtual_bytes: int
    """Size of the disk that a guest sees."""
    backing_name: str | None
    external_data: bool


def read_header(path: Path, image_format: ImageFormat) -> ImageHeader:
    """:raises Fatal: ``image.malformed``
    :raises OSError: the file cannot be read"""
    if image_format == "raw":
        return ImageHeader(virtual_bytes=path.stat().st_size, backing_name=None, external_data=False)
    with path.open("rb") as file:
        head = file.read(_HEADER_BYTES)
        if len(head) < _INCOMPATIBLE_OFFSET:
            raise _malformed("it is too short")
        magic, version, offset, size, _cluster_bits, virtual = _HEADER.unpack_from(head)
        if magic != _MAGIC or version not in (2, 3):
            raise _malformed("it has no qcow2 header")
        backing = None
        if offset:
            if size > _MAX_BACKING_NAME:
                raise _malformed("its backing file name is too long")
            file.seek(offset)
            backing = file.read(size).decode(errors="replace")
    features = 0
    if version == 3 and len(head) >= _INCOMPATIBLE_OFFSET + 8:
        (features,) = struct.unpack_from(">Q", head, _INCOMPATIBLE_OFFSET)
    return ImageHeader(virtual, backing, bool(features & _EXTERNAL_DATA_FILE))


def check_base_image(path: Path, image_format: ImageFormat) -> ImageHeader:
    """The header of an image that stands alone.

    :raises Fatal: ``image.malformed``, ``image.not_alone``
    """
    header = read_header(path, image_format)
    if header.backing_name is not None or header.external_data:
        raise Fatal(
            "image.not_alone",
            "the image refers to another file",
            hint="flatten it: qemu-img convert -f qcow2 -O qcow2 IN OUT",
            details=f"backing file {header.backing_name!a}, external data file: {header.external_data}",
        )
    return header


def _malformed(why: str) -> Fatal:
    return Fatal("image.malformed", f"the image is not what it was said to be: {why}", hint="check its format")
