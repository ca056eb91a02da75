# SPDX-License-Identifier: Apache-2.0
"""A port of this machine's loopback that is a VM's display, for any VNC viewer of the person who opened it."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.sync.client import ClientConnection

from orchestrator.cli.guest_stream import CHUNK, closed_by_vm
from orchestrator.core.errors import Conflict

LOOPBACK: Final = "127.0.0.1"
_CONNECTIONS: Final = Path("/proc/net/tcp")
_LOCAL, _REMOTE, _UID = 1, 2, 7
"""Columns there."""


def listen(port: int) -> socket.socket:
    """One viewer at a time. ``port``: 0 takes a free one. :raises Conflict: ``port.in_use``"""
    try:
        return socket.create_server((LOOPBACK, port), backlog=1)
    except OSError as error:
        hint = "leave --port out, and a free one is taken"
        raise Conflict("port.in_use", f"port {port} cannot be taken: {error.strerror}", hint=hint) from error


def accept_own(listener: socket.socket) -> socket.socket:
    """The next viewer that this person runs; others on this machine are hung up on."""
    while True:
        viewer, _ = listener.accept()
        if _uid_behind(viewer) == os.getuid():
            return viewer
        viewer.close()


def _uid_behind(viewer: socket.socket) -> int | None:
    """Whose process is at the other end, as the kernel lists it; None: it has left again."""
    try:
        ends = _as_listed(viewer.getpeername()), _as_listed(viewer.getsockname())
    except OSError:
        return None
    rows = (line.split() for line in _CONNECTIONS.read_text().splitlines()[1:])
    return next((int(row[_UID]) for row in rows if (row[_LOCAL], row[_REMOTE]) == ends), None)


def _as_listed(address: tuple[str, int]) -> str:
    return f"{socket.inet_aton(address[0])[::-1].hex().upper()}:{address[1]:04X}"


def join(viewer: socket.socket, stream: ClientConnection) -> bool:
    """Carry bytes both ways until one side ends; whether it was the VM's.

    :raises Retryable: ``stream.server_stopped``, ``stream.cut``; :raises Denied: ``stream.no_longer_allowed``
    """
    threading.Thread(target=_send, args=(viewer, stream), daemon=True).start()
    try:
        while True:
            message = stream.recv()
            viewer.sendall(message if isinstance(message, bytes) else message.encode())
    except ConnectionClosed as closed:
        return closed_by_vm(closed)
    except OSError:
        return False  # the viewer was closed
    finally:
        stream.close()
        with suppress(OSError):  # it has left
            viewer.shutdown(socket.SHUT_RDWR)
        viewer.close()


def _send(viewer: socket.socket, stream: ClientConnection) -> None:
    try:
        while data := viewer.recv(CHUNK):
            stream.send(data)
    except (WebSocketException, OSError):
        pass  # one side has closed
    stream.close()
