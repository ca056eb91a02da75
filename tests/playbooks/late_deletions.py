# SPDX-License-Identifier: Apache-2.0
"""A server whose things go between a look and a deletion."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def each_delete_comes_too_late(server: Path, directory: Path) -> Iterator[None]:
    """A socket like the server's: a deletion is sent until the thing is gone, and only the last answer is passed on."""
    directory.mkdir()

    def ask(request: bytes) -> bytes:
        with socket.socket(socket.AF_UNIX) as asked:
            asked.connect(str(server / "serve.sock"))
            asked.sendall(request)
            return b"".join(iter(lambda: asked.recv(65536), b""))

    def answer(client: socket.socket) -> None:
        with client, client.makefile("rb") as stream:
            head = b"".join(iter(stream.readline, b"\r\n")) + b"\r\n"
            length = re.search(rb"(?i)content-length: ([0-9]+)", head)
            request = head + stream.read(int(length[1]) if length else 0)
            answered = ask(request)
            while request.startswith(b"DELETE ") and b" 404 " not in answered.splitlines()[0]:
                answered = ask(request)
            client.sendall(answered)

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(directory / "serve.sock"))
        listening.listen()

        def serve() -> None:
            with suppress(OSError):
                while True:
                    answer(listening.accept()[0])

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()
