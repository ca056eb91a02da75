# SPDX-License-Identifier: Apache-2.0
"""A server on loopback that strangers reach, and those who want to be answered beside them."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

from tests.contract.api.conftest import Reply, Send, sender
from tests.fakes.running import running_server

STRANGER, NEIGHBOUR = "127.0.0.2", "127.0.0.3"
"""All of 127.0.0.0/8 is this machine: two peers."""
WAIT_S = 60.0


@dataclass(frozen=True)
class Open:
    state: Path
    owner: Send
    port: int
    pid: int

    @property
    def token(self) -> str:
        return (self.state / "token").read_text()

    def connected(self, source: str = STRANGER) -> socket.socket:
        """The window is small: what is not read stays in the server."""
        one = socket.socket()
        one.settimeout(WAIT_S)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.bind((source, 0))
        one.connect(("127.0.0.1", self.port))
        return one

    def encrypted(self, source: str = STRANGER) -> ssl.SSLSocket:
        return trust(self.state).wrap_socket(self.connected(source), server_hostname="127.0.0.1")

    def neighbour(self, path: str, token: str | None = None, body: object = None) -> tuple[int, Any]:
        """Asked over the network by somebody who has done nothing."""
        connection = HTTPSConnection(
            "127.0.0.1", self.port, context=trust(self.state), timeout=WAIT_S, source_address=(NEIGHBOUR, 0)
        )
        with closing(connection):
            headers = {"Authorization": f"Bearer {token or self.token}", "Content-Type": "application/json"}
            method, sent = ("GET", None) if body is None else ("POST", json.dumps(body))
            connection.request(method, path, sent, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def answers_others(self) -> None:
        assert self.owner("GET", "/v1/hosts").status == 200
        assert self.neighbour("/v1/vms?tenant=red") == (200, [])

    def descriptors(self) -> int:
        return len([*Path(f"/proc/{self.pid}/fd").iterdir()])

    def log_lines(self) -> int:
        return (self.state / "serve.log").read_bytes().count(b"\n")


@contextmanager
def open_server(state: Path, *arguments: str) -> Iterator[Open]:
    with running_server(state, *arguments, module="tests.hostile.open_server", tree=Path.cwd()):
        said = (state / "serve.log").read_text().splitlines()
        port = next(int(line.rpartition(":")[2]) for line in said if line.startswith("https://"))
        owner = sender(state)
        yield Open(state, owner, port, _pid(owner))


def _pid(owner: Send) -> int:
    answer: Reply = owner("GET", "/v1/server")
    return int(answer.json()["pid"])


def trust(state: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(state / "server.pem"))


def read_to_the_end(one: socket.socket) -> bytes:
    """Until the server closes it; who waits for longer than :data:`WAIT_S` raises."""
    said = b""
    with suppress(ConnectionError, ssl.SSLError):
        while part := one.recv(65536):
            said += part
    return said
