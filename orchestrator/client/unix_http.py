# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 to our own server on a unix socket: one request after the other, answers with a length.

The standard library's client loads the e-mail and TLS machinery, which takes a fifth of the time
that a whole command may take.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from orchestrator.client.location import SocketAddress

MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
_MAX_LINE: Final = 16 * 1024
_MAX_HEADERS: Final = 100
_NO_BODY: Final = 204


class BrokenAnswer(OSError):
    """The peer closed in the middle of an answer, or it does not speak HTTP."""


@dataclass(frozen=True)
class Answer:
    """Status and whole body."""

    status: int
    body: bytes


class UnixHttp:
    """A kept-open connection. After an error it is closed and may be opened again.

    ``headers`` go with every request.
    """

    def __init__(self, path: Path, timeout_s: float, headers: Mapping[str, str] | None = None) -> None:
        self._headers = {"Host": "localhost", "Accept": "application/json", **(headers or {})}
        self._path = path
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None
        self._reader: BinaryIO | None = None

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    def open(self) -> None:
        """:raises OSError: nobody listens there"""
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connected.settimeout(self._timeout_s)
        try:
            with SocketAddress(self._path) as address:
                connected.connect(address)
        except OSError:
            connected.close()
            raise
        self._socket, self._reader = connected, connected.makefile("rb")

    def close(self) -> None:
        for end in (self._reader, self._socket):
            if end is not None:
                end.close()
        self._socket = self._reader = None

    def request(self, method: str, target: str, body: bytes | None) -> Answer:
        """``target`` is quoted already. :raises OSError: the answer did not come, whole"""
        if self._socket is None or self._reader is None:
            raise BrokenAnswer("not connected")
        head = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in self._headers.items())]
        if body is not None:
            head += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        self._socket.sendall("\r\n".join([*head, "", ""]).encode("ascii") + (body or b""))
        return _read_answer(self._reader)


def _read_answer(reader: BinaryIO) -> Answer:
    version, _, rest = _line(reader).partition(" ")
    status = rest[:3]
    if version != "HTTP/1.1" or not (status.isascii() and status.isdigit()):
        raise BrokenAnswer("the answer is not HTTP/1.1")
    length: int | None = 0 if int(status) == _NO_BODY else None
    for _ in range(_MAX_HEADERS):
        line = _line(reader)
        if not line:
            break
        name, _, value = line.partition(":")
        if name.lower() == "content-length" and value.strip().isdigit():
            length = int(value)
    if length is None or length > MAX_ANSWER_BYTES:
        raise BrokenAnswer("the answer has no usable length")
    body = reader.read(length)
    if len(body) < length:
        raise BrokenAnswer("the connection was closed inside an answer")
    return Answer(int(status), body)


def _line(reader: BinaryIO) -> str:
    line = reader.readline(_MAX_LINE)
    if not line.endswith(b"\n"):
        raise BrokenAnswer("the connection was closed inside an answer")
    return line.rstrip(b"\r\n").decode("latin-1")
