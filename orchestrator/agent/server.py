# SPDX-License-Identifier: Apache-2.0
"""Listens on the unix socket; a thread for each connection."""

from __future__ import annotations

import contextlib
import grp
import os
import socket
import threading
from pathlib import Path

from orchestrator.agent.assembly import Agent
from orchestrator.agent.paths import SOCKET_GROUP
from orchestrator.agent.session import AgentSession
from orchestrator.agent.sessions import sessions_full
from orchestrator.core.errors import error_to_dict
from orchestrator.core.protocol import encode_frame

_BACKLOG = 128
MAX_GREETING = 128
"""Connections that have not said yet who they are; those that have are bounded by sessions.py."""


class Server:
    def __init__(self, agent: Agent, path: Path) -> None:
        self._agent = agent
        self._path = path
        self._greeting = threading.BoundedSemaphore(MAX_GREETING)
        self._socket = _listen(path)

    def serve_forever(self) -> None:
        """Ends with OSError after :meth:`close`."""
        while True:
            connection, _ = self._socket.accept()
            if not self._greeting.acquire(blocking=False):
                _turn_away(connection)
                continue
            threading.Thread(target=self._serve, args=(connection,), name="session", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        AgentSession(self._agent, connection, greeted=self._greeting.release).run()

    def close(self) -> None:
        self._socket.close()
        self._path.unlink(missing_ok=True)


def _turn_away(connection: socket.socket) -> None:
    error = error_to_dict(sessions_full(f"{MAX_GREETING} connections have not said yet who they are"))
    with connection, contextlib.suppress(OSError):
        connection.settimeout(0)  # an empty buffer takes it at once
        connection.sendall(encode_frame({"error": error}))


def _listen(path: Path) -> socket.socket:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    mask = os.umask(0o177)  # nobody may connect before the group is right
    try:
        listener.bind(str(path))
    finally:
        os.umask(mask)
    group = _group()
    if group is not None:
        os.chown(path, -1, group)
        path.chmod(0o660)
    listener.listen(_BACKLOG)
    return listener


def _group() -> int | None:
    """The group that the controller's account is in; without it only root may talk to the agent."""
    try:
        return grp.getgrnam(SOCKET_GROUP).gr_gid
    except KeyError:
        return None
