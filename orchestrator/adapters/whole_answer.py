# SPDX-License-Identifier: Apache-2.0
"""Answers over HTTP that end in time however they come. A socket's timeout is of one read: who sends a letter now and
then would be listened to for ever."""

from __future__ import annotations

import http.client
import io
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

FILE_S: Final = 60.0
FILE_BYTES: Final = 60 * 1024
_OPENED: Final = (".connect_tcp.complete", ".start_tls.complete")


class Pace:
    """How slowly an answer, head and body, may come: its reads may wait so long together; with ``enough_bytes`` as long
    again after each so many. What the reader does between counts for nothing."""

    def __init__(self, within_s: float, enough_bytes: int | None = None) -> None:
        self._within_s, self._enough = within_s, enough_bytes
        self._waited_s, self._bytes, self._began = 0.0, 0, 0.0

    def left_s(self) -> float:
        """A read begins, which may wait for so long at most. :raises TimeoutError: the time is over"""
        left_s = self._within_s - self._waited_s
        if left_s <= 0:
            raise TimeoutError("the answer comes too slowly")
        self._began = time.monotonic()
        return left_s

    def came(self, size: int) -> None:
        """The read has ended with so many bytes."""
        self._bytes += size
        self._waited_s += time.monotonic() - self._began
        if self._enough is not None and self._bytes >= self._enough:
            self._waited_s, self._bytes = 0.0, 0


def of_file() -> Pace:
    """For what may be large: a KiB a second at least, counted over a minute."""
    return Pace(FILE_S, FILE_BYTES)


def paced(pace: Pace, late: Callable[[str], Exception]) -> Callable[[str, Mapping[str, Any]], None]:
    """What httpx2 is given as the extension ``trace`` of a request, so that its answer is read at that pace. Each
    connection that is opened for it passes here, with a proxy too. ``late``: the error then."""

    def trace(event: str, info: Mapping[str, Any]) -> None:
        if event.endswith(_OPENED):
            opened = info["return_value"]
            opened.read = _in_time(opened.read, pace, late)

    return trace


def _in_time(read: Callable[..., bytes], pace: Pace, late: Callable[[str], Exception]) -> Callable[..., bytes]:
    def timed(max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            left_s = pace.left_s()
        except TimeoutError as error:
            raise late(str(error)) from error
        part = read(max_bytes, left_s if timeout is None else min(timeout, left_s))
        pace.came(len(part))
        return part

    return timed


class WholeAnswer(http.client.HTTPResponse):
    """``pace``: None: all of it may take as long as the socket's timeout says for one read. Reads raise TimeoutError
    then."""

    def __init__(self, sock: socket.socket, *words: Any, pace: Pace | None = None, **named: Any) -> None:
        super().__init__(sock, *words, **named)
        self.fp = io.BufferedReader(_Timed(self.fp.detach(), sock, pace))


class _Timed(io.RawIOBase):
    def __init__(self, raw: io.RawIOBase, sock: socket.socket, pace: Pace | None) -> None:
        self._raw, self._sock = raw, sock
        self._each_s = float(sock.gettimeout() or 0)
        self._pace = pace or Pace(self._each_s)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(min(self._each_s, self._pace.left_s()))
        size = self._raw.readinto(buffer) or 0
        self._pace.came(size)
        return size

    def close(self) -> None:
        self._raw.close()
        super().close()
