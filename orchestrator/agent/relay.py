# SPDX-License-Identifier: Apache-2.0
"""The forced command of the controller's SSH key: copies between SSH and the agent's socket, and can do nothing else.

Started for every channel, often on a busy host: so it imports next to nothing, and the words for a refusal only then.
"""

from __future__ import annotations

import os
import select
import socket

DEFAULT_SOCKET = "/run/vgpuctl-agent/agent.sock"
REQUEST = "vgpuctl-agent"
"""The only command line that a controller may ask for."""

_CHUNK = 64 * 1024
_STDIN, _STDOUT, _STDERR = 0, 1, 2


def relay(socket_path: str, asked_for: str | None) -> int:
    """Exit code. ``asked_for``: what sshd says the client wanted to run."""
    if asked_for not in (None, REQUEST) or os.isatty(_STDIN):
        return _refuse("agent.command_refused", "this key may only talk to the vgpuctl agent", "")
    agent = socket.socket(socket.AF_UNIX)
    try:
        agent.connect(socket_path)
    except OSError as error:
        return _refuse("agent.not_running", "the agent does not run on the host", str(error))
    with agent:
        _copy_both_ways(agent)
    return 0


def _refuse(code: str, message: str, details: str) -> int:
    """Tell whoever listens: the controller as a frame, a person at a terminal as a line."""
    from orchestrator.core.errors import Denied, Retryable, VgpuctlError, error_to_dict
    from orchestrator.core.protocol import encode_frame

    error: VgpuctlError = Denied(code, message)
    if details:
        error = Retryable(code, message, hint="on the host: systemctl status vgpuctl-agent", details=details)
    os.write(_STDERR, f"{message}\n".encode())
    if not os.isatty(_STDOUT):
        _write_all(_STDOUT, encode_frame({"error": error_to_dict(error)}))
    return error.exit_code


def _copy_both_ways(agent: socket.socket) -> None:
    """Until the agent closes. The end of stdin is passed on, since the last answer may still be on its way."""
    ready = select.poll()
    ready.register(_STDIN, select.POLLIN)
    ready.register(agent, select.POLLIN)
    while True:
        for descriptor, _ in ready.poll():
            if descriptor != _STDIN:
                data = _received(agent)
                if not data:
                    return
                _write_all(_STDOUT, data)
            elif not _passed_on(os.read(_STDIN, _CHUNK), agent):
                ready.unregister(_STDIN)


def _passed_on(data: bytes, agent: socket.socket) -> bool:
    """Whether the agent takes more. One that has had enough may still have its reason to tell."""
    try:
        if data:
            agent.sendall(data)
        else:
            agent.shutdown(socket.SHUT_WR)
    except OSError:
        return False
    return bool(data)


def _received(agent: socket.socket) -> bytes:
    try:
        return agent.recv(_CHUNK)
    except ConnectionResetError:
        return b""


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
