# SPDX-License-Identifier: Apache-2.0
"""VMDK images of one file (monolithicSparse, streamOptimized): looked at, and made qcow2 by a process that can reach
that file and its result and nothing else. What names another file, in whatever way, is refused before that.

Sources: VMware, Virtual Disk Format 5.0; QEMU block/vmdk.c, which reads 20 sectors as the descriptor.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Final

from oslo_utils.imageutils import format_inspector

from orchestrator.adapters.files.copying import KEPT_FREE_BYTES
from orchestrator.adapters.images.confined import INTO
from orchestrator.adapters.images.qemu_check import run_confined
from orchestrator.adapters.images.refused import MAX_IMAGE_BYTES, check_disk_size, unsafe

MAGIC: Final = b"KDMV"
_HEADER: Final = struct.Struct("<4sIIQQQQIQQ")
_SECTOR: Final = 512
_READ_SECTORS: Final = 20
_COMPRESSED: Final = 1 << 16
_MAX_GRAIN: Final = 2048
_ENTRIES: Final = 512
"""Of each table of grains."""
_ONE_FILE: Final = "give one that is all in one file (monolithicSparse or streamOptimized), or qcow2"
_KINDS: Final = frozenset({"monolithicsparse", "streamoptimized"})
_KIND: Final = re.compile(r'^[ \t]*createtype[ \t]*=[ \t]*"([a-z0-9]{1,40})"[ \t]*$', re.MULTILINE)
_EXTENT: Final = re.compile(r"^[ \t]*(?:rw|rdonly|noaccess)[ \t]", re.MULTILINE)
_OWN_EXTENT: Final = re.compile(r'^rw [0-9]{1,15} sparse "[^"/\\\n]{1,255}"[ \t]*$', re.MULTILINE)
_SECONDS: Final = 1800.0
_ONE_AT_A_TIME: Final = Lock()
"""How much one may write goes by what is free when it begins."""


def convert(path: Path, result: Path) -> None:
    """``result``: an empty file, which becomes qcow2.

    :raises InvalidInput: ``image.unsafe``, ``image.too_large``; :raises Fatal: ``image.checker_missing``
    """
    _check(path)
    with _ONE_AT_A_TIME:
        most = min(MAX_IMAGE_BYTES, max(0, shutil.disk_usage(result.parent).free - KEPT_FREE_BYTES))
        words = ("convert", "-f", "vmdk", "-O", "qcow2", str(path), str(result))
        done = run_confined(path, (INTO, str(result), str(most)), words, _SECONDS)
    if done.returncode != 0:
        raise unsafe("could not be made qcow2: it is damaged, or there is no room for it", _ONE_FILE)


def _check(path: Path) -> None:
    """:raises InvalidInput: ``image.unsafe``, ``image.too_large``"""
    with path.open("rb") as file:
        first = file.read(_HEADER.size)
        if len(first) < _HEADER.size:
            raise unsafe("is a VMDK that is cut")
        _, version, flags, capacity, grain, at, sectors, entries, _, directory = _HEADER.unpack(first)
        if version not in {1, 2, 3} or at != 1 or not 0 < sectors <= 2048 or capacity == 0:
            raise unsafe("is a VMDK that refers to other files, or is none", _ONE_FILE)
        check_disk_size(capacity * _SECTOR)
        file.seek(_SECTOR)
        read = file.read(max(sectors, _READ_SECTORS) * _SECTOR)
        if not flags & _COMPRESSED:
            _check_whole(file, capacity, grain, entries, directory)
    _check_descriptor(read[: sectors * _SECTOR], read)
    try:
        inspector = format_inspector.detect_file_format(str(path))
        if inspector is None or str(inspector) != "vmdk":
            raise unsafe("is of several formats at once", _ONE_FILE)
        inspector.safety_check()
    except (format_inspector.ImageFormatError, format_inspector.SafetyCheckFailed) as error:
        raise unsafe("is a VMDK that is damaged or of an unsafe form", _ONE_FILE) from error


def _check_whole(file: BinaryIO, capacity: int, grain: int, entries: int, directory: int) -> None:
    """QEMU reads what is behind the file's end as zeros. Of compressed ones the footer tells.

    :raises InvalidInput: ``image.unsafe``"""
    size = file.seek(0, os.SEEK_END)
    if not 1 <= grain <= _MAX_GRAIN or entries != _ENTRIES or directory * _SECTOR > size:
        raise unsafe("is a VMDK that is damaged or of an unsafe form", _ONE_FILE)
    tables = _numbers(file, directory, -(-capacity // (grain * entries)))
    ends = (max(_numbers(file, table, entries)) + grain for table in tables if table)
    if max(ends, default=0) * _SECTOR > size:
        raise unsafe("is a VMDK that is cut", "download or copy it again")


def _numbers(file: BinaryIO, sector: int, count: int) -> tuple[int, ...]:
    file.seek(sector * _SECTOR)
    content = file.read(4 * count)
    if len(content) < 4 * count:
        raise unsafe("is a VMDK that is cut", "download or copy it again")
    return struct.unpack(f"<{count}I", content)


def _check_descriptor(own: bytes, read: bytes) -> None:
    """``own``: what the header calls the descriptor; ``read``: all that QEMU takes for it."""
    text, most = own.split(b"\0", 1)[0].lower(), read.lower()
    if b"parentfilenamehint" in most or b"parentcid=ffffffff" not in text:
        raise unsafe("is a VMDK on top of another file", _ONE_FILE)
    try:
        words = text.decode("ascii").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise unsafe("is a VMDK whose descriptor is no text", _ONE_FILE) from error
    kinds = _KIND.findall(words)
    if len(kinds) != 1 or kinds[0] not in _KINDS or most.count(b"createtype") != 1:
        raise unsafe(f"is a VMDK of type {kinds[0] if kinds else 'unknown'}", _ONE_FILE)
    if len(_EXTENT.findall(words)) != 1 or len(_OWN_EXTENT.findall(words)) != 1:
        raise unsafe("is a VMDK of several files", _ONE_FILE)
