# SPDX-License-Identifier: Apache-2.0
"""A unix socket of this server behind which one machine's ssh server is: the only way out that a run of Ansible has.

A guest is reached by a stream through the agent of its VM's host, a host by a connection of this server's own.
"""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from orchestrator.core.errors import Fatal, Retryable, VgpuctlError
from orchestrator.ports.host import ByteStream

CHUNK: Final = 65536
FULL_S: Final = 0.05
"""Until a machine that takes no bytes is asked again."""
BACKLOG: Final = 8
CONNECT_S: Final = 15
"""Shorter than ssh waits itself, so that the reason is known before it gives up."""
MAX_ANSWERS_BYTES: Final = 8 * 1024 * 1024
"""What a machine may say in one run, as ssh encrypts it. A role's answers are some 100 KB."""
ACKNOWLEDGED: Final = 64
"""For so many bytes that it is sent it may say one more: sftp confirms each block of a file."""

OpenStream = Callable[[], ByteStream]


class TcpStream:
    """A ByteStream (ports/host.py) to a TCP port."""

    def __init__(self, address: str, port: int) -> None:
        self._socket = socket.create_connection((address, port), timeout=CONNECT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, data: bytes, /) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0

    def receive(self, size: int, /) -> bytes:
        return self._socket.recv(size)

    def close(self) -> None:
        self._socket.close()


def tcp_stream(address: str, port: int) -> ByteStream:
    """:raises Retryable: ``host.unreachable``"""
    try:
        return TcpStream(address, port)
    except OSError as error:
        raise Retryable(
            "host.unreachable",
            f"the host does not answer over SSH: {error.strerror or error}",
            hint="check address, port and the host itself",
        ) from error


class SshProxy:
    """``refused``: why the newest stream could not be opened, or was cut off; None: it was not."""

    def __init__(self, path: Path, open_stream: OpenStream) -> None:
        self.path = path
        self.refused: VgpuctlError | None = None
        self._open_stream = open_stream
        self._listening = socket.socket(socket.AF_UNIX)
        self._closed = threading.Event()
        self._left = MAX_ANSWERS_BYTES

    def listen(self) -> None:
        """Until :meth:`close`."""
        self._listening.bind(str(self.path))
        self._listening.listen(BACKLOG)
        threading.Thread(target=self._accept, daemon=True, name="ssh proxy").start()

    def close(self) -> None:
        """Those who are connected are cut off."""
        self._closed.set()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def explained(self, error: VgpuctlError | None) -> VgpuctlError | None:
        """What kept ssh from its connection says more than ssh can. ``error``: of the run that is over."""
        if error is None or self.refused is None:
            return error
        return self.refused if error.code.endswith(".unreachable") or self._left < 0 else error

    def _accept(self) -> None:
        with suppress(OSError):
            while not self._closed.is_set():
                near = self._listening.accept()[0]
                threading.Thread(target=self._serve, args=(near,), daemon=True, name="ssh proxy stream").start()

    def _serve(self, near: socket.socket) -> None:
        with near:
            try:
                far = self._open_stream()
            except VgpuctlError as error:
                self.refused = error
                return
            self.refused = None
            try:
                self._join(near, far)
            except (OSError, VgpuctlError):
                return  # one of the ends is gone, and ssh says so
            finally:
                far.close()

    def _join(self, near: socket.socket, far: ByteStream) -> None:
        """Until one of the ends closes, or the machine has said too much."""
        while not self._closed.is_set():
            ready = select.select([near.fileno(), far.fileno()], [], [], 1)[0]
            if far.fileno() in ready:
                data = far.receive(CHUNK)
                if not data:
                    return
                self._count(data)
                near.sendall(data)
            if near.fileno() in ready:
                data = near.recv(CHUNK)
                if not data:
                    return
                self._left += len(data) // ACKNOWLEDGED
                self._send(far, data)

    def _count(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0:
            self.close()
            self.refused = Fatal(
                "ansible.too_much",
                f"the machine answered with more than {MAX_ANSWERS_BYTES // 2**20} MiB",
                hint="no role of ours makes it say so much: look what its Python and its packages are",
            )
            raise self.refused

    def _send(self, far: ByteStream, data: bytes) -> None:
        while data and not self._closed.is_set():
            taken = far.send(data)
            data = data[taken:]
            if not taken:
                self._closed.wait(FULL_S)


@contextmanager
def ssh_proxy_to(path: Path, open_stream: OpenStream) -> Iterator[SshProxy]:
    """Open for as long as the block lasts."""
    proxy = SshProxy(path, open_stream)
    try:
        proxy.listen()
        yield proxy
    finally:
        proxy.close()
