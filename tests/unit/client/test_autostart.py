# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import socket
import sys
import threading
from pathlib import Path

import pytest

from orchestrator.client import autostart
from orchestrator.client.location import LOG_NAME, SOCKET_NAME
from orchestrator.client.version import VERSION
from orchestrator.core.errors import Conflict, Fatal, VgpuctlError, error_to_dict


def _answer_once(state: Path, begin: threading.Event) -> None:
    """Somebody else's server, which listens when ``begin`` is set."""
    begin.wait(30)
    body = json.dumps({"version": VERSION, "pid": os.getpid()}).encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(state / SOCKET_NAME))
        listener.listen(1)
        with listener.accept()[0] as peer:
            peer.recv(65536)
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
            peer.sendall(f"Content-Length: {len(body)}\r\n\r\n".encode() + body)


def _ends_with(error: VgpuctlError, monkeypatch: pytest.MonkeyPatch, ended: threading.Event) -> None:
    """A server that says why it does not start, as a real one does in its log, and ends."""

    def spawn(state: Path, log: Path) -> int:
        line = autostart.START_ERROR_MARK + json.dumps(error_to_dict(error))
        program = [sys.executable, "-c", "import sys; print(sys.argv[1])", line]
        opened = [(os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)]
        pid = os.posix_spawn(sys.executable, program, dict(os.environ), file_actions=opened)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        threading.Timer(0.2, ended.set).start()
        return pid

    monkeypatch.setattr(autostart, "_spawn", spawn)


def test_a_command_waits_for_the_server_that_somebody_else_is_just_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = threading.Event()
    _ends_with(Conflict(autostart.ALREADY_RUNNING, "a server runs here already"), monkeypatch, refused)
    other = threading.Thread(target=_answer_once, args=(tmp_path, refused), daemon=True)
    other.start()
    connection = autostart.connect(tmp_path)
    connection.close()
    other.join(30)
    assert not connection.server_is_new
    assert (tmp_path / LOG_NAME).read_text().startswith(autostart.START_ERROR_MARK)


def test_one_that_cannot_start_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _ends_with(Fatal("store.newer_schema", "the database is of a newer version"), monkeypatch, threading.Event())
    with pytest.raises(Fatal, match="newer version"):
        autostart.connect(tmp_path)
