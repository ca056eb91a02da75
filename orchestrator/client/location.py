# SPDX-License-Identifier: Apache-2.0
"""Where the local control plane keeps its state, and the names of the files both sides of the socket use."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

SOCKET_NAME = "serve.sock"
SERVE_LOCK_NAME = "serve.lock"
"""Held by the running server, so that one state directory has one server."""
START_LOCK_NAME = "serve.start.lock"
"""Held by whoever is starting one, so that two commands do not start two."""
LOG_NAME = "serve.log"

_LONGEST_SOCKET_PATH = 100
"""sun_path holds 108 bytes (unix(7)); a longer path goes through a directory descriptor."""


def state_directory(environment: Mapping[str, str] | None = None) -> Path:
    """``VGPUCTL_STATE``, or the place the system has for such state. Absolute; may not exist yet."""
    environment = os.environ if environment is None else environment
    chosen = environment.get("VGPUCTL_STATE")
    if chosen:
        return Path(chosen).absolute()
    if os.geteuid() == 0:
        return Path("/var/lib/vgpuctl")
    base = environment.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "vgpuctl"


class SocketAddress:
    """A path that fits into a unix socket address, however deep the state directory is.

    A context manager: the address is good while it is open.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._directory: int | None = None

    def __enter__(self) -> str:
        if len(os.fsencode(self._path)) <= _LONGEST_SOCKET_PATH:
            return str(self._path)
        self._directory = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._directory}/{self._path.name}"

    def __exit__(self, *_: object) -> None:
        if self._directory is not None:
            os.close(self._directory)
            self._directory = None


def bind_for_owner(listener: socket.socket, path: Path) -> None:
    """So that nobody but its owner (and root) can connect, from the first moment on."""
    before = os.umask(0o177)
    try:
        with SocketAddress(path) as address:
            listener.bind(address)
    finally:
        os.umask(before)
