# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio

import pytest
import uvicorn
from starlette.requests import HTTPConnection
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from orchestrator.api.protocols import PeerWebSocketProtocol, uid_of
from orchestrator.core.errors import Denied
from orchestrator.core.tenancy.tenant import Member
from tests.fakes.services import InMemory


class _Unread(asyncio.Transport):
    """To a client that reads nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        """It is lost already."""


async def _open_for_ever(_scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "websocket.accept"})
    while (await receive())["type"] != "websocket.disconnect":
        pass


def test_a_websocket_keeps_no_answers_that_nobody_reads_and_no_pieces_of_nothing() -> None:
    async def play() -> None:
        transport = _Unread()
        protocol = PeerWebSocketProtocol(uvicorn.Config(_open_for_ever, log_config=None), ServerState(), {})
        protocol.connection_made(transport)
        protocol.data_received(
            b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        while not transport.written:
            await asyncio.sleep(0)
        protocol.pause_writing()
        before = len(transport.written)
        for _ in range(100):
            protocol.data_received(b"\x89\x81\0\0\0\0x")  # a ping
        assert len(transport.written) == before
        protocol.data_received(b"\x02\x81\0\0\0\0x" + 100 * b"\x00\x80\0\0\0\0")  # the first piece, empty ones
        assert len(protocol.frames) == 1
        protocol.resume_writing()
        protocol.data_received(b"\x89\x81\0\0\0\0y")
        assert transport.written[before:] == b"\x8a\x01y"
        protocol.connection_lost(ConnectionResetError())

    asyncio.run(play())


def _from(client: tuple[str, int] | None) -> HTTPConnection:
    return HTTPConnection({"type": "http", "client": client, "headers": []})


@pytest.mark.parametrize("uid", [0, 1, 1000, 2**32 - 2])
def test_a_peers_uid_is_what_the_kernel_said(uid: int) -> None:
    assert uid_of(_from((f"uid:{uid}", 1))) == uid


@pytest.mark.parametrize(
    "client", [None, ("uid:", 1), ("0", 1), ("127.0.0.1", 80), ("uid:0x0", 1), ("uid:00", 1), ("uid:-1", 1)]
)
def test_anything_else_is_no_peer(client: tuple[str, int] | None) -> None:
    assert uid_of(_from(client)) is None


def test_root_and_the_owner_are_admins_and_others_what_they_were_made() -> None:
    tenancy = InMemory().tenancy
    access = tenancy.access
    assert access.of_uid(0).everywhere == access.of_uid(access.owner_uid).everywhere == {"admin"}
    with pytest.raises(Denied, match="does not know you"):
        access.of_uid(54321)
    tenancy.tenants.put_member(Member(tenant="default", subject="uid:54321", role="tenant-user"))
    assert access.of_uid(54321).roles_in("default") == {"tenant-user"}
    assert access.of_uid(54321).tenants == ("default",)
