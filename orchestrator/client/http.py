# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 to our own server: one request after the other, answers with a length.

The standard library's client loads the e-mail and TLS machinery, which takes a fifth of the time
that a whole command may take.
"""

from __future__ import annotations

import re
import select
import socket
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, ClassVar, Final

from orchestrator.client.content import Content
from orchestrator.client.location import SocketAddress

MAX_ANSWER_BYTES: Final = 256 * 1024 * 1024
KEPT_S: Final = 3.0
"""A connection that has rested longer is not used again: our server closes it after 5 s (uvicorn's
``timeout_keep_alive``), and a request that comes at that moment is lost."""
_MAX_LINE: Final = 16 * 1024
_MAX_HEADERS: Final = 100
_CONTINUE: Final = 100
_NO_BODY: Final = {_CONTINUE, 204, 304}
_CHUNK: Final = re.compile(r"[0-9a-fA-F]{1,7}")
STREAM_SILENT_S: Final = 45.0
"""The server says every 15 s that a stream is alive."""
CHECKED_WITHIN_S: Final = 900.0
"""How long the server may take to store and check a file whose last byte it has."""


class BrokenAnswer(OSError):
    """The peer closed in the middle of an answer, or it does not speak HTTP."""


class NotConnected(OSError):
    """Nobody listens there: nothing was sent."""


@dataclass(frozen=True)
class HttpAnswer:
    """Status, headers by lower-case name, whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Http(ABC):
    """A kept-open connection, opened by the first request. An error closes it, and the next request opens it again.

    ``place`` is where the server is, for people; ``headers`` go with every request.
    """

    way_out: ClassVar[str]
    """What to do when nobody answers there."""

    def __init__(self, place: str, host: str, headers: Mapping[str, str] | None = None) -> None:
        self.place = place
        self.headers = headers_to(host, headers)
        self._ends: tuple[socket.socket, BinaryIO] | None = None
        self._used = False
        self._rests_since = 0.0

    @abstractmethod
    def connected(self) -> socket.socket:
        """A new connection to the server. :raises OSError: nobody listens there"""

    def open(self) -> tuple[socket.socket, BinaryIO]:
        """What is written to and what is read from. :raises OSError: nobody listens there"""
        connected = self.connected()
        self._ends = connected, connected.makefile("rb")
        self._used = False
        self._rests_since = time.monotonic()
        return self._ends

    def close(self) -> None:
        for end in self._ends or ():
            end.close()
        self._ends = None

    def interrupt(self) -> None:
        """A request under way in another thread ends with an error."""
        if self._ends is not None:
            with suppress(OSError):
                self._ends[0].shutdown(socket.SHUT_RDWR)

    def request(self, method: str, target: str, body: bytes | None, key: str | None = None) -> HttpAnswer:
        """``target`` is quoted already; ``key``: of :func:`request_headers`.

        :raises NotConnected: nothing was sent
        :raises OSError: the answer did not come, whole
        """
        head = _head(method, target, {**self.headers, **request_headers(body, key)})
        with self._ready() as (connected, reader):
            connected.sendall(head + (body or b""))
            return _read_answer(reader)

    def upload(self, method: str, target: str, content: Content) -> HttpAnswer:
        """Send a file, when the server asks for it and until it answers.

        :raises NotConnected: nothing was sent
        :raises OSError: the answer did not come, whole
        :raises InvalidInput: the file could not be read to its end
        """
        of_file = {"Content-Type": "application/octet-stream", "Content-Length": str(content.size)}
        head = _head(method, target, {**self.headers, **of_file, "Expect": "100-continue"})
        with self._ready() as (connected, reader):
            connected.sendall(head)
            answer = _read_answer(reader)
            if answer.status == _CONTINUE:
                for part in content.parts():
                    if _is_due(connected):
                        break
                    connected.sendall(part)
                connected.settimeout(CHECKED_WITHIN_S)
                answer = _read_answer(reader)
        self.close()  # what of the file is still on its way would be taken for the next request
        return answer

    def open_stream(self, target: str, headers: Mapping[str, str]) -> HttpStream:
        """An answer that is read part by part, on a connection of its own.

        :raises NotConnected: nothing was sent; :raises OSError: no answer began
        """
        try:
            connected = self.connected()
        except OSError as error:
            raise NotConnected(*error.args) from error
        connected.settimeout(STREAM_SILENT_S)
        stream = HttpStream(connected)
        try:
            connected.sendall(_head("GET", target, {**self.headers, **headers, "Accept": "*/*"}))
            stream.begin()
        except BaseException:
            stream.close()
            raise
        return stream

    def next_part(self, stream: HttpStream) -> bytes:
        """Empty: that was all. :raises OSError: it broke off, or nothing has come for long"""
        return stream.part()

    def close_stream(self, stream: HttpStream) -> None:
        """Closed already is fine."""
        stream.close()

    @contextmanager
    def _ready(self) -> Iterator[tuple[socket.socket, BinaryIO]]:
        """For one request. What interrupts it closes the connection: its late answer would be the next one's."""
        rested_s = time.monotonic() - self._rests_since
        if self._ends is not None and (rested_s > KEPT_S or (self._used and _is_due(self._ends[0]))):
            self.close()
        try:
            ends = self._ends or self.open()
        except OSError as error:
            raise NotConnected(*error.args) from error
        self._used = True
        try:
            yield ends
        except BaseException:
            self.close()
            raise
        self._rests_since = time.monotonic()


class HttpStream:
    """An answer in chunks. ``problem``: the whole body where it is no good one."""

    def __init__(self, connected: socket.socket) -> None:
        self._connected = connected
        self._reader = connected.makefile("rb")
        self.status = 0
        self.problem = b""

    def begin(self) -> None:
        """Read its head."""
        self.status, headers = _read_head(self._reader)
        if headers.get("transfer-encoding") != "chunked":
            self.problem = _read_body(self._reader, self.status, headers)

    def part(self) -> bytes:
        """The next chunk. Those of an event's length are sent whole."""
        size = _line(self._reader)
        if not _CHUNK.fullmatch(size):
            raise BrokenAnswer("a part of the answer has no usable length")
        part = self._reader.read(int(size, 16))
        if len(part) < int(size, 16) or _line(self._reader):
            raise BrokenAnswer("the connection was closed inside an answer")
        return part

    def close(self) -> None:
        self._reader.close()
        self._connected.close()


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


def request_headers(body: bytes | None, key: str | None) -> dict[str, str]:
    """``key``: under which the server carries it out once, however often it comes."""
    keyed = {} if key is None else {"Idempotency-Key": key}
    return keyed if body is None else keyed | {"Content-Type": "application/json", "Content-Length": str(len(body))}


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


def _read_answer(reader: BinaryIO) -> HttpAnswer:
    """:raises BrokenAnswer: it is none"""
    status, headers = _read_head(reader)
    return HttpAnswer(status, headers, _read_body(reader, status, headers))


def _read_head(reader: BinaryIO) -> tuple[int, dict[str, str]]:
    version, _, rest = _line(reader).partition(" ")
    status = rest[:3]
    if version != "HTTP/1.1" or not (status.isascii() and status.isdigit()):
        raise BrokenAnswer("the answer is not HTTP/1.1")
    return int(status), _read_headers(reader)


def _read_body(reader: BinaryIO, status: int, headers: Mapping[str, str]) -> bytes:
    announced = headers.get("content-length", "0" if status in _NO_BODY else "")
    if not announced.isdigit() or int(announced) > MAX_ANSWER_BYTES:
        raise BrokenAnswer("the answer has no usable length")
    body = reader.read(int(announced))
    if len(body) < int(announced):
        raise BrokenAnswer("the connection was closed inside an answer")
    return body


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
