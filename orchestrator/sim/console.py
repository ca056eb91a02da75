# SPDX-License-Identifier: Apache-2.0
"""A guest at the other end of a console or a TCP connection."""

from __future__ import annotations

import queue


class Echo:
    """Greets, sends back what it gets, and hangs up on Ctrl-D."""

    def __init__(self, greeting: bytes) -> None:
        self._bytes: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._bytes.put(greeting)

    def send(self, data: bytes, /) -> None:
        self._bytes.put(b"" if data == b"\x04" else data)

    def receive(self, size: int, /) -> bytes:
        return self._bytes.get()[:size]

    def close(self) -> None:
        self._bytes.put(b"")
