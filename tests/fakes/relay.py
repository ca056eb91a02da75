# SPDX-License-Identifier: Apache-2.0
"""A relay for a stream on a socket, which delays, loses and cuts what goes back."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

_CHUNK = 65536


class Relay:
    """Forwards what comes to ``listener`` to a new connection of ``target``, until :meth:`close`."""

    def __init__(self, listener: socket.socket, target: Callable[[], socket.socket]) -> None:
        self.delay_s = 0.0
        """Before anything that goes back."""
        self.lost = False
        """Nothing goes back, and nobody is told."""
        self.cut_after: int | None = None
        """So many bytes go back, then every connection ends."""
        self.on_answer: Callable[[bytes], None] | None = None
        """Called once, when half of an answer to something that ``asks`` matches has gone back."""
        self.asks = b""
        self._listener = listener
        self._target = target
        self._open: set[socket.socket] = set()
        self._asked = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        """Of a listener on the network."""
        return int(self._listener.getsockname()[1])

    def cut_in(self, seconds: float) -> None:
        threading.Timer(seconds, self.cut).start()

    def cut(self) -> None:
        """Every connection ends now."""
        for one in tuple(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = self._target()
                except OSError:
                    client.close()
                    continue
                self._open |= {client, server}
                for work in (self._up, self._down):
                    threading.Thread(target=work, args=(client, server), daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while chunk := client.recv(_CHUNK):
                self._asked = self._asked or (self.on_answer is not None and self.asks in chunk)
                server.sendall(chunk)
        self._end(client, server)

    def _down(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while chunk := server.recv(_CHUNK):
                time.sleep(self.delay_s)
                if not self.lost:
                    self._answer(client, chunk)
        self._end(client, server)

    def _answer(self, client: socket.socket, chunk: bytes) -> None:
        told = self.on_answer
        if told is not None and self._asked:
            self.on_answer, self._asked = None, False
            client.sendall(chunk[: len(chunk) // 2])
            told(chunk)
            chunk = chunk[len(chunk) // 2 :]
        if self.cut_after is not None:
            chunk, self.cut_after = chunk[: self.cut_after], max(0, self.cut_after - len(chunk))
        client.sendall(chunk)
        if self.cut_after == 0:
            self.cut()

    def _end(self, *sockets: socket.socket) -> None:
        for one in sockets:
            self._open.discard(one)
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
