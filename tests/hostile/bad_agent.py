# SPDX-License-Identifier: Apache-2.0
"""An agent that answers whatever its host's owner likes: the real link in front of a channel in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orchestrator.adapters.agent_link.link import SshHostLink
from orchestrator.core.hosts.host import Host

Answer = Callable[[int], bytes]
"""Number of the question → the bytes that come back."""


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def answering(result: str) -> Answer:
    """``result``: JSON as it stands."""
    return lambda number: framed(f'{{"id":{number},"result":{result}}}'.encode("utf-8", "surrogatepass"))


def refusing(error: str) -> Answer:
    return lambda number: framed(f'{{"id":{number},"error":{error}}}'.encode("utf-8", "surrogatepass"))


HELLO = framed(b'{"hello":{"protocol":1,"agent_version":"0"}}')


class BadChannel:
    """As paramiko's, as far as a conversation uses it."""

    def __init__(self, answer: Answer, hello: bytes) -> None:
        self._answer, self._hello = answer, hello
        self._waiting = b""
        self.closed = False
        self.eof_received = False

    def exec_command(self, _command: str) -> None:
        """The forced command runs whatever is asked."""

    def settimeout(self, _seconds: float | None) -> None:
        """Everything is there at once."""

    def sendall(self, data: bytes) -> None:
        request: dict[str, Any] = json.loads(data[4:])
        self._waiting += self._hello if "hello" in request else self._answer(request["id"])

    def recv(self, size: int) -> bytes:
        data, self._waiting = self._waiting[:size], self._waiting[size:]
        return data

    def recv_stderr_ready(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


class _Transport:
    def __init__(self, answer: Answer, hello: bytes) -> None:
        self._answer, self._hello = answer, hello

    def open_session(self, timeout: float) -> BadChannel:
        assert timeout > 0
        return BadChannel(self._answer, self._hello)

    def is_active(self) -> bool:
        return True

    def close(self) -> None:
        """Nothing is behind it."""


class BadAgentLink(SshHostLink):
    """Everything of the real one but the wire."""

    def __init__(self, answer: Answer, hello: bytes = HELLO) -> None:
        super().__init__(site="site", key_file=Path("/none"))
        self._answer, self._hello = answer, hello

    def _connect(self, host: Host) -> Any:
        assert host.address
        return _Transport(self._answer, self._hello)
