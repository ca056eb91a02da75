# SPDX-License-Identifier: Apache-2.0
"""A unix socket of this server behind which a guest's ssh server is: each connection to it is a stream of its own
through the agent of the VM's host. Nobody else may open its directory."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from orchestrator.core.errors import VgpuctlError
from orchestrator.ports.host import ByteStream

CHUNK: Final = 65536
FULL_S: Final = 0.05
"""Until a guest that takes no bytes is asked again."""
BACKLOG: Final = 8

OpenStream = Callable[[], ByteStream]


class GuestDoor:
    """``refused``: why the newest stream could not be opened; None: it could."""

    def __init__(self, path: Path, open_stream: OpenStream) -> None:
        self.path = path
        self.refused: VgpuctlError | None = None
        self._open_stream = open_stream
        self._listening = socket.socket(socket.AF_UNIX)
        self._closed = threading.Event()

    def listen(self) -> None:
        """Until :meth:`close`."""
        self._listening.bind(str(self.path))
        self._listening.listen(BACKLOG)
        threading.Thread(target=self._accept, daemon=True, name="guest door").start()

    def close(self) -> None:
        """Those who are connected are cut off."""
        self._closed.set()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while not self._closed.is_set():
                near = self._listening.accept()[0]
                threading.Thread(target=self._serve, args=(near,), daemon=True, name="guest stream").start()

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
        """Until one of the ends closes."""
        while not self._closed.is_set():
            ready = select.select([near.fileno(), far.fileno()], [], [], 1)[0]
            if far.fileno() in ready:
                data = far.receive(CHUNK)
                if not data:
                    return
                near.sendall(data)
            if near.fileno() in ready:
                data = near.recv(CHUNK)
                if not data:
                    return
                self._send(far, data)

    def _send(self, far: ByteStream, data: bytes) -> None:
        while data and not self._closed.is_set():
            taken = far.send(data)
            data = data[taken:]
            if not taken:
                self._closed.wait(FULL_S)


@contextmanager
def guest_door(path: Path, open_stream: OpenStream) -> Iterator[GuestDoor]:
    """Open for as long as the block lasts."""
    door = GuestDoor(path, open_stream)
    try:
        door.listen()
        yield door
    finally:
        door.close()
