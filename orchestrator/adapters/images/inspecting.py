# SPDX-License-Identifier: Apache-2.0
"""What an image file is: qcow2 or raw, of its own, and whole. Whatever is not certain is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from oslo_utils.imageutils import format_inspector

from orchestrator.adapters.images import qcow2, qemu_check, raw_disk
from orchestrator.adapters.images.architecture import other_architecture
from orchestrator.adapters.images.qcow2 import needed_bytes
from orchestrator.adapters.images.refused import check_disk_size, unsafe
from orchestrator.core.actions.host_actions import ImageFormat
from orchestrator.core.vms.image import for_other_hosts

_SECTOR: Final = 512
_VMDK_TEXT: Final = b"# Disk DescriptorFile"
_COMPRESSED: Final = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"7z\xbc\xaf": "7z",
}
_OTHERS: Final = {b"WithoutFreeSpace": "parallels", b"WithouFreSpacExt": "parallels", b"Bochs Virtual HD": "bochs"}
"""Formats of QEMU's that the inspector does not know."""
_BITLOCKER: Final = b"-FVE-FS-"
"""In place of a file system's name, behind the jump of a boot sector."""
_RAW: Final = frozenset({"raw", "gpt"})
"""The inspector calls a raw disk with a partition table ``gpt``."""
_CONVERT: Final = "convert it with qemu-img convert -O qcow2"
_AGAIN: Final = "download or copy it again"


@dataclass(frozen=True)
class Found:
    format: ImageFormat
    virtual_bytes: int
    """Of the disk that a guest sees."""


def inspect(path: Path, named: ImageFormat | None) -> Found:
    """``named``: the format that somebody named; None: it is told by the content.

    :raises InvalidInput: ``image.unsafe``, ``image.too_large``, ``image.architecture``
    :raises Fatal: ``image.checker_missing``
    """
    with path.open("rb") as file:
        first = file.read(len(_VMDK_TEXT))
    if not first:
        raise unsafe("is empty")
    is_qcow2 = first.startswith(qcow2.MAGIC)
    if named is not None and is_qcow2 != (named == "qcow2"):
        raise unsafe(f"is {'' if is_qcow2 else 'not '}qcow2, which was to be {named}", "leave the format out")
    if is_qcow2:
        return Found("qcow2", _check_qcow2(path))
    _refuse_other_formats(path, first)
    return Found("raw", _check_raw(path, named=named is not None))


def _check_qcow2(path: Path) -> int:
    """The size of its disk."""
    size = path.stat().st_size
    with path.open("rb") as file:
        header = qcow2.read_header(file.read(qcow2.MAX_HEADER_BYTES), size)
        needed = needed_bytes(file, size, header)
    checked = qemu_check.check(path)
    # The last cluster may be short when what is in it is: compressed content ends in a sector of it.
    needed = max(needed, checked.end - header.cluster_bytes + 1)
    if size < needed:
        raise unsafe(f"is cut: the file has {size} bytes, its content reaches to {needed}", _AGAIN)
    if checked.errors:
        raise unsafe(f"is damaged: qemu-img check finds {checked.errors} errors", _AGAIN)
    _check_architecture(path, header)
    return header.virtual_bytes


def _refuse_other_formats(path: Path, first: bytes) -> None:
    """What begins like a raw disk and is something else, to QEMU or to those who made it."""
    if first == _VMDK_TEXT:
        raise unsafe("is a VMDK descriptor, which refers to other files")
    compressed = _begins_with(_COMPRESSED, first)
    if compressed is not None:
        raise unsafe(f"is compressed with {compressed}", "unpack it first")
    other = _begins_with(_OTHERS, first)
    if other is not None:
        raise unsafe(f"is {other}, not qcow2 or raw", _CONVERT)
    if first[3:].startswith(_BITLOCKER):
        raise unsafe("is encrypted (BitLocker)", "a base image is not encrypted")
    try:
        file_format = str(format_inspector.detect_file_format(str(path)))
    except format_inspector.ImageFormatError as error:
        raise unsafe("is damaged, or of several formats at once", _CONVERT) from error
    if file_format == "luks":
        raise unsafe("is encrypted (LUKS)", "a base image is not encrypted")
    if file_format not in _RAW:
        raise unsafe(f"is {file_format}, not qcow2 or raw", _CONVERT)


def _begins_with(magics: Mapping[bytes, str], first: bytes) -> str | None:
    return next((name for magic, name in magics.items() if first.startswith(magic)), None)


def _check_raw(path: Path, *, named: bool) -> int:
    """The size of the disk. ``named``: somebody says that it is one, so nothing has to be found on it."""
    size = path.stat().st_size
    if size % _SECTOR:
        raise unsafe("is no disk: its size is not a multiple of 512 bytes", "is it complete, and an image at all?")
    check_disk_size(size)
    with path.open("rb") as file:
        content = raw_disk.content_of(file.read(raw_disk.HEAD_BYTES))
    if content is None and not named:
        raise unsafe(
            "holds no partition table and no file system that is known",
            "when it is a disk nevertheless, say so: --format raw",
        )
    if content is not None and content.bytes > size:
        raise unsafe(f"is cut: its {content.name} reaches to {content.bytes} bytes, the file has {size}", _AGAIN)
    _check_architecture(path, None)
    return size


def _check_architecture(path: Path, header: qcow2.Header | None) -> None:
    """:raises InvalidInput: ``image.architecture``"""
    with path.open("rb") as file:
        other = other_architecture(file, header)
    if other is not None:
        raise for_other_hosts(other)
