# SPDX-License-Identifier: Apache-2.0
"""Parts of deb and rpm files. Every length is bounded before it is believed; nothing is unpacked.

A deb is an ``ar`` archive (deb(5)). An rpm is a lead, a header of signatures (padded to 8 bytes), the header that
describes the package, and the payload (rpm's own documentation, "V4 package format").
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from orchestrator.core.drivers.bundle import unknown_content

AR_MAGIC: Final = b"!<arch>\n"
RPM_MAGIC: Final = b"\xed\xab\xee\xdb"
_AR_MEMBER: Final = 60
_RPM_LEAD: Final = 96
_RPM_ENTRY: Final = 16
_RPM_HEADER: Final = b"\x8e\xad\xe8\x01"
_RPM_HEADER_BYTES: Final = 16 * 1024 * 1024
"""It lists the package's files, of which drivers have hundreds; kernels with 20,000 need 3 MiB."""
_MAX_TAGS: Final = 0xFFFF
"""As rpm itself has it."""
_RPM_TEXTS: Final = frozenset({6, 8})
"""A string; an array of strings, of which the first counts."""
_RPM_BINARY: Final = 7
_MAX_TEXT: Final = 4096


@dataclass(frozen=True)
class ArMember:
    """Where a member's content lies."""

    name: str
    start: int
    size: int

    @property
    def stem(self) -> str:
        """``control`` of ``control.tar.xz``."""
        return self.name.partition(".tar")[0]

    @property
    def packing(self) -> str:
        """``.xz`` of it; empty: none."""
        return self.name.partition(".tar")[2]


def ar_members(file: BinaryIO) -> Iterator[ArMember]:
    """In their order, until one is no member any more."""
    start = len(AR_MAGIC)
    while True:
        file.seek(start)
        head = file.read(_AR_MEMBER)
        name, size = head[:16].rstrip().rstrip(b"/"), head[48:58].strip()
        if len(head) != _AR_MEMBER or head[58:] != b"`\n" or not size.isdigit():
            return
        yield ArMember(name.decode("ascii", "replace"), start + _AR_MEMBER, int(size))
        start += _AR_MEMBER + int(size) + int(size) % 2


@dataclass(frozen=True)
class RpmHeader:
    """One header. ``content``: all of it, as a signature of it is made over; its store begins at ``start``."""

    content: bytes
    entries: dict[int, tuple[int, int, int]]
    """Tag → kind, where its value begins in the store, how many."""
    start: int

    def text(self, tag: int) -> str:
        """Empty when it is not there."""
        kind, offset, _ = self.entries.get(tag, (0, 0, 0))
        if kind not in _RPM_TEXTS:
            return ""
        begin = self.start + offset
        end = self.content.find(b"\0", begin, begin + _MAX_TEXT)
        return self.content[begin : end if end >= 0 else begin + _MAX_TEXT].decode("utf-8", "replace")

    def binary(self, tag: int) -> bytes | None:
        """None when it is not there."""
        kind, offset, count = self.entries.get(tag, (0, 0, 0))
        begin = self.start + offset
        return self.content[begin : begin + count] if kind == _RPM_BINARY else None


def rpm_headers(file: BinaryIO) -> tuple[RpmHeader, RpmHeader]:
    """That of signatures, and that of the package; afterwards ``file`` is at the payload.

    :raises InvalidInput: ``bundle.unknown_content``
    """
    file.seek(_RPM_LEAD)
    signatures = _rpm_header(file)
    file.seek(-file.tell() % 8, io.SEEK_CUR)
    return signatures, _rpm_header(file)


def _rpm_header(file: BinaryIO) -> RpmHeader:
    intro = file.read(16)
    if len(intro) != 16 or intro[:4] != _RPM_HEADER:
        raise unknown_content("the package's header is damaged")
    entries, size = struct.unpack(">II", intro[8:])
    length = entries * _RPM_ENTRY + size
    if entries > _MAX_TAGS or length > _RPM_HEADER_BYTES:
        raise unknown_content("the package's header is too large")
    file.seek(-len(intro), io.SEEK_CUR)
    content = file.read(len(intro) + length)
    if len(content) != len(intro) + length:
        raise unknown_content("the package's header is cut off")
    start = len(intro) + entries * _RPM_ENTRY
    index = struct.iter_unpack(">IIII", memoryview(content)[len(intro) : start])
    tags = {tag: (kind, offset, count) for tag, kind, offset, count in index if offset < size}
    return RpmHeader(content, tags, start)
