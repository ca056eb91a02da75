# SPDX-License-Identifier: Apache-2.0
"""What a disk had at a moment when its power could have gone, from a log of the device (dm-log-writes): everything up
to that moment, in the order in which it was made durable, and nothing that came later.

The log's format: linux/drivers/md/dm-log-writes.c.
"""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_SUPER = struct.Struct("<QQQI")
_ENTRY = struct.Struct("<QQQQ")
_DISCARD, _MARK = 4, 8
"""Flags of an entry; sizes are in sectors of the log."""


@dataclass(frozen=True)
class _Entry:
    sector: int
    sectors: int
    flags: int
    mark: str
    at: int
    """Where its data begins in the log."""


def _entries(log: BinaryIO) -> tuple[int, list[_Entry]]:
    """Size of a sector, and all entries in the order in which the device made them durable."""
    _, _, count, size = _SUPER.unpack(log.read(_SUPER.size))
    found, at = list[_Entry](), size
    for _ in range(count):
        log.seek(at)
        head = log.read(size)
        sector, sectors, flags, length = _ENTRY.unpack(head[: _ENTRY.size])
        mark = head[_ENTRY.size : _ENTRY.size + length].decode().rstrip("\0") if flags & _MARK else ""
        found.append(_Entry(sector, sectors, flags, mark, at + size))
        at += size + (0 if flags & _DISCARD else sectors * size)
    return size, found


def cuts(disk: Path, log_file: Path, count: int, dice: random.Random) -> Iterator[int]:
    """``count`` times after the first mark: the last ``kept`` that was told by then, when ``disk`` is as it was then.

    ``disk``: as it was before the log."""
    with log_file.open("rb") as log, disk.open("r+b") as file:
        size, entries = _entries(log)
        begun = next(number for number, one in enumerate(entries) if one.mark)
        chosen = set(dice.sample(range(begun + 1, len(entries)), count))
        told = 0
        for number, one in enumerate(entries):
            kind, _, rest = one.mark.partition(".")
            told = int(rest) if kind == "kept" else told
            if not one.flags & (_DISCARD | _MARK):
                log.seek(one.at)
                file.seek(one.sector * size)
                file.write(log.read(one.sectors * size))
            if number in chosen:
                file.flush()
                yield told


def files_of(disk: Path, directory: str, scratch: Path) -> Path:
    """A directory at the top of an ext4 file system whose power was cut: its journal is replayed first, in a copy."""
    copy = scratch / "cut.img"
    shutil.copyfile(disk, copy)
    mended = subprocess.run(["e2fsck", "-p", copy], capture_output=True, text=True, timeout=120)
    assert mended.returncode in {0, 1}, mended.stdout + mended.stderr
    shutil.rmtree(scratch / directory, ignore_errors=True)
    subprocess.run(
        ["debugfs", "-R", f"rdump {directory} {scratch}", copy], check=True, capture_output=True, timeout=120
    )
    return scratch / directory
