# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 to our own server: one request after the other, answers with a length.

The standard library's client loads the e-mail and TLS machinery, which takes a fifth of the time
that a whole command may take.
"""

from __future__ import annotations

import select
import socket
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, ClassVar, Final

from orchestrator.client.content import Content
from orchestrator.client.location import SocketAddress

MAX_ANSWER_BYTES: Final = 256 * 1024 * 1024
FRESH_S: Final = 1.0
"""A connection that was opened longer ago and not used may have been left by the server meanwhile."""
_MAX_LINE: Final = 16 * 1024
_MAX_HEADERS: Final = 100
CONTINUE: Final = 100
_NO_BODY: Final = {CONTINUE, 204, 304}
CHECKED_WITHIN_S: Final = 900.0
"""How long the server may take to store and check a file whose last byte it has."""


class BrokenAnswer(OSError):
    """The peer closed in the middle of an answer, or it does not speak HTTP."""


@dataclass(frozen=True)
class HttpAnswer:
    """Status, headers by lower-case name, whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Http(ABC):
    """A kept-open connection. After an error it is closed and may be opened again.

    ``place`` is where the server is, for people; ``headers`` go with every request.
    """

    way_out: ClassVar[str]
    """What to do when nobody answers there."""

    def __init__(self, place: str, host: str, headers: Mapping[str, str] | None = None) -> None:
        self.place = place
        self._headers = headers_to(host, headers)
        self._socket: socket.socket | None = None
        self._reader: BinaryIO | None = None
        self._used = False
        self._opened_at = 0.0

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    @abstractmethod
    def connected(self) -> socket.socket:
        """A new connection to the server. :raises OSError: nobody listens there"""

    def open(self) -> None:
        """:raises OSError: nobody listens there"""
        self._socket = self.connected()
        self._reader = self._socket.makefile("rb")
        self._used = False
        self._opened_at = time.monotonic()

    def close(self) -> None:
        for end in (self._reader, self._socket):
            if end is not None:
                end.close()
        self._socket = self._reader = None

    def request(self, method: str, target: str, body: bytes | None, key: str | None = None) -> HttpAnswer:
        """``target`` is quoted already; ``key``: of :func:`written`.

        :raises OSError: the answer did not come, whole
        """
        connected, reader = self._ready()
        connected.sendall(written(method, target, self._headers, body, key))
        return _read_answer(reader)

    def upload(self, method: str, target: str, content: Content) -> HttpAnswer:
        """Send a file, when the server asks for it and until it answers.

        :raises OSError: the answer did not come, whole
        :raises InvalidInput: the file could not be read to its end
        """
        connected, reader = self._ready()
        connected.sendall(head_of_file(method, target, self._headers, content.size))
        answer = _read_answer(reader)
        if answer.status == CONTINUE:
            for part in content.parts():
                if _is_due(connected):
                    break
                connected.sendall(part)
            connected.settimeout(CHECKED_WITHIN_S)
            answer = _read_answer(reader)
        self.close()  # what of the file is still on its way would be taken for the next request
        return answer

    def _ready(self) -> tuple[socket.socket, BinaryIO]:
        rested = self._used or time.monotonic() - self._opened_at > FRESH_S
        if rested and self._socket is not None and _is_due(self._socket):
            self.close()
            self.open()
        if self._socket is None or self._reader is None:
            raise BrokenAnswer("not connected")
        self._used = True
        return self._socket, self._reader


def _is_due(kept: socket.socket) -> bool:
    """Something can be read: an answer, or the end. Nothing is due between two requests, so it is the end there:
    servers close those that rest."""
    waiting = select.poll()
    waiting.register(kept, select.POLLIN)
    return bool(waiting.poll(0))


def headers_to(host: str, headers: Mapping[str, str] | None) -> dict[str, str]:
    """What goes with every request."""
    return {"Host": host, "Accept": "application/json", "User-Agent": user_agent(), **(headers or {})}


def user_agent() -> str:
    """Which of the programs that use this client it is, for the audit: of those that are loaded the first."""
    programs = {"orchestrator.cli.session": "cli", "ansible": "ansible"}
    program = next((name for module, name in programs.items() if module in sys.modules), "python")
    return f"vgpuctl-{program}"


def written(method: str, target: str, headers: Mapping[str, str], body: bytes | None, key: str | None) -> bytes:
    """A request. ``key``: under which the server carries it out once, however often it comes."""
    more = {} if key is None else {"Idempotency-Key": key}
    if body is not None:
        more |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
    return _head(method, target, {**headers, **more}) + (body or b"")


def head_of_file(method: str, target: str, headers: Mapping[str, str], size: int) -> bytes:
    """A request whose body is a file, without the body: the server asks for it, or refuses before it is sent."""
    more = {"Content-Type": "application/octet-stream", "Content-Length": str(size), "Expect": "100-continue"}
    return _head(method, target, {**headers, **more})


def _head(method: str, target: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("ascii")


class UnixHttp(Http):
    """To a server on this machine."""

    way_out = "run 'vgpuctl server status'"

    def __init__(self, path: Path, timeout_s: float, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(str(path), "localhost", headers)
        self._path = path
        self._timeout_s = timeout_s

    def connected(self) -> socket.socket:
        """:raises OSError: nobody listens there"""
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connected.settimeout(self._timeout_s)
        try:
            with SocketAddress(self._path) as address:
                connected.connect(address)
        except OSError:
            connected.close()
            raise
        return connected


def read_head(reader: BinaryIO) -> tuple[int, dict[str, str], int]:
    """Status, headers and how many bytes of body follow. :raises BrokenAnswer: it is none"""
    version, _, rest = _line(reader).partition(" ")
    status = rest[:3]
    if version != "HTTP/1.1" or not (status.isascii() and status.isdigit()):
        raise BrokenAnswer("the answer is not HTTP/1.1")
    headers = _read_headers(reader)
    announced = headers.get("content-length", "0" if int(status) in _NO_BODY else "")
    if not announced.isdigit() or int(announced) > MAX_ANSWER_BYTES:
        raise BrokenAnswer("the answer has no usable length")
    return int(status), headers, int(announced)


def _read_answer(reader: BinaryIO) -> HttpAnswer:
    status, headers, length = read_head(reader)
    body = reader.read(length)
    if len(body) < length:
        raise BrokenAnswer("the connection was closed inside an answer")
    return HttpAnswer(status, headers, body)


def _read_headers(reader: BinaryIO) -> dict[str, str]:
    headers: dict[str, str] = {}
    for _ in range(_MAX_HEADERS):
        line = _line(reader)
        if not line:
            return headers
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    raise BrokenAnswer("the answer has too many headers")


def _line(reader: BinaryIO) -> str:
    line = reader.readline(_MAX_LINE)
    if not line.endswith(b"\n"):
        raise BrokenAnswer("the connection was closed inside an answer")
    return line.rstrip(b"\r\n").decode("latin-1")
