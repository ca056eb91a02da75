# SPDX-License-Identifier: Apache-2.0
"""Who answers over HTTP for ever: a beginning, and then a letter now and then."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

HEAD = b"HTTP/1.1 200 OK\r\nX-Long: "
STATUS = b"HTTP/1.1 2"
BODY = b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n"
CHUNK = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;"


@contextmanager
def dripping(first: bytes, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Its address and port. Each answer begins with ``first``."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_answer, args=(listening, first, tls), daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def _answer(listening: socket.socket, first: bytes, tls: ssl.SSLContext | None) -> None:
    with suppress(OSError):
        while True:
            asking, _ = listening.accept()
            threading.Thread(target=_drip, args=(asking, first, tls), daemon=True).start()


def _drip(asking: socket.socket, first: bytes, tls: ssl.SSLContext | None) -> None:
    with suppress(OSError), asking if tls is None else tls.wrap_socket(asking, server_side=True) as answered:
        answered.recv(65536)
        answered.sendall(first)
        while True:
            answered.sendall(b"x")
            time.sleep(0.05)
