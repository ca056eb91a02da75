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

from orchestrator.core.driver_bundle import unknown_content

AR_MAGIC: Final = b"!<arch>\n"
RPM_MAGIC: Final = b"\xed\xab\xee\xdb"
_AR_MEMBER: Final = 60
_RPM_LEAD: Final = 96
_RPM_HEADER: Final = b"\x8e\xad\xe8\x01"
_RPM_HEADER_BYTES: Final = 64 * 1024 * 1024
_RPM_TEXTS: Final = frozenset({6, 8})
"""A string; an array of strings, of which the first counts."""
_RPM_BINARY: Final = 7


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
    """One header. ``content``: all of it, as a signature of it is made over."""

    content: bytes
    entries: dict[int, tuple[int, int, int]]
    """Tag → kind, where its value begins in the store, how many."""
    store: bytes

    def text(self, tag: int) -> str:
        """Empty when it is not there."""
        kind, offset, _ = self.entries.get(tag, (0, 0, 0))
        if kind not in _RPM_TEXTS:
            return ""
        return self.store[offset:].partition(b"\0")[0].decode("utf-8", "replace")

    def binary(self, tag: int) -> bytes | None:
        """None when it is not there."""
        kind, offset, count = self.entries.get(tag, (0, 0, 0))
        return self.store[offset : offset + count] if kind == _RPM_BINARY else None


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
    if entries * 16 + size > _RPM_HEADER_BYTES:
        raise unknown_content("the package's header is too large")
    index, store = file.read(entries * 16), file.read(size)
    if len(index) != entries * 16 or len(store) != size:
        raise unknown_content("the package's header is cut off")
    found = {
        tag: (kind, offset, count) for tag, kind, offset, count in struct.iter_unpack(">IIII", index) if offset < size
    }
    return RpmHeader(intro + index + store, found, store)
