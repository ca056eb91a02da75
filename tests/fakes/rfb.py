# SPDX-License-Identifier: Apache-2.0
"""A small VNC viewer: RFB 3.8 (RFC 6143), no password, raw encoding."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

PRESSED_A = struct.pack(">BBxxI", 4, 1, ord("a"))


@dataclass(frozen=True)
class Picture:
    name: str
    width: int
    height: int
    pixels: bytes
    """Of the rectangles of one update, four bytes each."""


@dataclass
class Viewer:
    """``receive``: at most so many bytes, at least one; b"" at the end."""

    send: Callable[[bytes], object]
    receive: Callable[[int], bytes]
    name: str = ""
    size: tuple[int, int] = (0, 0)

    def greet(self) -> None:
        version = self._read(12)
        assert version.startswith(b"RFB 003."), version
        self.send(b"RFB 003.008\n")
        ways = self._read(self._read(1)[0])
        assert 1 in ways, "it asks for a password"
        self.send(b"\x01")
        assert self._read(4) == bytes(4)
        self.send(b"\x01")  # others may watch, too
        width, height, *_, length = struct.unpack(">HH16sI", self._read(24))
        self.size, self.name = (width, height), self._read(length).decode()
        self.send(struct.pack(">BxHi", 2, 1, 0))

    def picture(self, *, incremental: bool = False) -> Picture:
        self.send(struct.pack(">BBHHHH", 3, incremental, 0, 0, *self.size))
        kind, rectangles = struct.unpack(">BxH", self._read(4))
        assert kind == 0, kind
        pixels = b""
        for _ in range(rectangles):
            _, _, width, height, encoding = struct.unpack(">HHHHi", self._read(12))
            assert encoding == 0, encoding
            pixels += self._read(4 * width * height)
        return Picture(self.name, *self.size, pixels)

    def _read(self, size: int) -> bytes:
        got = b""
        while len(got) < size:
            part = self.receive(size - len(got))
            assert part, f"it ended after {len(got)} of {size} bytes"
            got += part
        return got
