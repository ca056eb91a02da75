# SPDX-License-Identifier: Apache-2.0
"""An answer over HTTP that ends in time however it comes. A socket's timeout is of one read: who sends a letter now and
then would be listened to for ever."""

from __future__ import annotations

import http.client
import io
import socket
import time
from typing import Any


class WholeAnswer(http.client.HTTPResponse):
    """Head and body together may take as long as the socket's timeout says for one read; then reads raise
    TimeoutError."""

    def __init__(self, sock: socket.socket, *words: Any, **named: Any) -> None:
        super().__init__(sock, *words, **named)
        self.fp = io.BufferedReader(_Timed(self.fp.detach(), sock))


class _Timed(io.RawIOBase):
    def __init__(self, raw: io.RawIOBase, sock: socket.socket) -> None:
        self._raw, self._sock = raw, sock
        self._until = time.monotonic() + float(sock.gettimeout() or 0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the answer took too long")
        self._sock.settimeout(left_s)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()
