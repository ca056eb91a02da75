# SPDX-License-Identifier: Apache-2.0
"""The screen of a simulated VM: an RFB server (RFC 6143, version 3.8, no password, raw encoding) of one colour."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from typing import Final

WIDTH, HEIGHT = 64, 48
_VERSION: Final = b"RFB 003.008\n"
_NO_PASSWORD: Final = b"\x01\x01"
"""One way to log in is offered, and it is none."""
_WELCOME: Final = bytes(4)
_PIXEL_FORMAT: Final = struct.pack(">BBBBHHHBBB3x", 32, 24, 0, 1, 255, 255, 255, 16, 8, 0)
_SET_PIXEL_FORMAT, _SET_ENCODINGS, _UPDATE_REQUEST, _KEY, _POINTER, _CUT_TEXT = 0, 2, 3, 4, 5, 6
_LENGTHS: Final = {_SET_PIXEL_FORMAT: 20, _SET_ENCODINGS: 4, _UPDATE_REQUEST: 10, _KEY: 8, _POINTER: 6, _CUT_TEXT: 8}
"""Of a viewer's messages; two of them say in these bytes how many more follow."""
MAX_UNREAD: Final = 1 << 20
"""Bytes for a viewer that does not read; it is given no more."""


class Screen:
    """As ports.host.ByteStream. Each key that is pressed changes the colour."""

    def __init__(self, name: str) -> None:
        self._lock = threading.Lock()
        """Both directions give the viewer what it has not read yet."""
        self._guest, self._ours = socket.socketpair()
        self._guest.setblocking(False)
        self._name = name.encode()
        self._said, self._unread = b"", b""
        self._greeted = 0
        self._changed, self._asked = True, False
        self._shade = 0x20
        self._show(_VERSION)

    def fileno(self) -> int:
        return self._ours.fileno()

    def send(self, data: bytes, /) -> int:
        """:raises BrokenPipeError: the viewer speaks no RFB"""
        self._flush()
        if len(self._unread) > MAX_UNREAD:
            return 0
        self._said += data
        while (length := self._length_of_next()) is not None and len(self._said) >= length:
            message, self._said = self._said[:length], self._said[length:]
            self._answer(message)
        return len(data)

    def receive(self, size: int, /) -> bytes:
        received = self._ours.recv(size)
        self._flush()
        return received

    def close(self) -> None:
        self._guest.close()
        self._ours.close()

    def _length_of_next(self) -> int | None:
        """Bytes of the message that has begun; None: its length is not known yet."""
        if self._greeted < len(_GREETINGS):
            return len(_GREETINGS[self._greeted][0])
        if not self._said:
            return None
        fixed = _LENGTHS.get(self._said[0])
        if fixed is None:
            self._guest.shutdown(socket.SHUT_WR)
            raise BrokenPipeError
        if len(self._said) < fixed or self._said[0] not in (_SET_ENCODINGS, _CUT_TEXT):
            return fixed
        if self._said[0] == _SET_ENCODINGS:
            return fixed + 4 * int(struct.unpack_from(">H", self._said, 2)[0])
        return fixed + int(struct.unpack_from(">I", self._said, 4)[0])

    def _answer(self, message: bytes) -> None:
        if self._greeted < len(_GREETINGS):
            answer = _GREETINGS[self._greeted][1]
            self._greeted += 1
            size = struct.pack(">HH", WIDTH, HEIGHT) + _PIXEL_FORMAT + struct.pack(">I", len(self._name)) + self._name
            self._show(size if answer is None else answer)
        elif message[0] == _UPDATE_REQUEST:
            self._asked, self._changed = True, self._changed or not message[1]
        elif message[0] == _KEY and message[1]:
            self._shade, self._changed = (self._shade + 0x10) % 0x100, True
        if self._asked and self._changed:
            self._asked = self._changed = False
            head = struct.pack(">BxHHHHHi", 0, 1, 0, 0, WIDTH, HEIGHT, 0)
            self._show(head + bytes([self._shade]) * (4 * WIDTH * HEIGHT))

    def _show(self, data: bytes) -> None:
        with self._lock:
            self._unread += data
        self._flush()

    def _flush(self) -> None:
        with self._lock, suppress(BlockingIOError):  # the rest when some of it was read
            while self._unread:
                self._unread = self._unread[self._guest.send(self._unread) :]


_GREETINGS: Final[tuple[tuple[bytes, bytes | None], ...]] = (
    (_VERSION, _NO_PASSWORD), (b"\x01", _WELCOME), (b"\x01", None),
)  # fmt: skip
"""What a viewer says in turn (as long as this), and what it is answered; None: size, format and name."""
