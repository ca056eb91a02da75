# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from orchestrator.client.location import SOCKET_NAME
from tests.fakes.running import running_server


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


Send = Callable[..., Reply]


def next_page(headers: Mapping[str, str]) -> str | None:
    """Where a list goes on; None: that was its last page."""
    link = re.fullmatch(r'<(.*)>; rel="next"', headers.get("link", ""))
    return None if link is None else link[1]


def pages_of(client: TestClient, target: str) -> Iterator[Any]:
    """What each page of a list answers, in turn."""
    following: str | None = target
    while following is not None:
        reply = client.get(following)
        assert reply.status_code == 200, reply.text
        yield reply.json()
        following = next_page(reply.headers)


@pytest.fixture(scope="session")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with running_server(tmp_path_factory.mktemp("state")) as directory:
        yield directory


def exchange(path: Path, request: bytes) -> bytes:
    """Bytes in, all bytes out until the server closes."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connected:
        connected.settimeout(30)
        connected.connect(str(path))
        chunks = []
        with suppress(BrokenPipeError, ConnectionResetError):
            connected.sendall(request)
        with suppress(ConnectionResetError):
            while chunk := connected.recv(65536):
                chunks.append(chunk)
        return b"".join(chunks)


@pytest.fixture(scope="session")
def send(state: Path) -> Send:
    return sender(state)


def sender(state: Path) -> Send:
    """One request on a connection of its own; ``body`` is sent as it is when it is bytes, as JSON otherwise."""

    def call(method: str, target: str, body: object = None, content_type: str = "application/json") -> Reply:
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        head = f"{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        if body is not None:
            head += f"Content-Type: {content_type}\r\nContent-Length: {len(data)}\r\n"
        answer = exchange(state / SOCKET_NAME, head.encode("latin-1") + b"\r\n" + data)
        top, _, content = answer.partition(b"\r\n\r\n")
        lines = top.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        return Reply(int(lines[0].split()[1]), headers, content)

    return call
